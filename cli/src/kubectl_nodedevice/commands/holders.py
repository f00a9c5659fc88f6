"""`kubectl nodedevice holders`: prints which pod uses which devices."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import click
from nodedevice_kube.api_errors import Forbidden, NotFound
from nodedevice_kube.paths import PODS

from kubectl_nodedevice.api import GROUP, POD_DEVICES, if_readable, path_of
from kubectl_nodedevice.cluster import (
    Allocation,
    Claim,
    ClaimedDevice,
    Device,
    HeldDevice,
    HeldResource,
    HoldingContainer,
    Meta,
    NodeDevice,
    Object,
    PodDevice,
)
from kubectl_nodedevice.errors import FINE, UsageProblem
from kubectl_nodedevice.output import Cell, Table
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.styles import BAD, GOOD, PLAIN
from kubectl_nodedevice.text import age

_STYLES: Final = {"Healthy": GOOD, "Unhealthy": BAD}


@dataclass(frozen=True, slots=True)
class Line:
    found: PodDevice
    container: str
    resource: HeldResource
    device: HeldDevice


@click.command(cls=Command)
@click.argument("pod", required=False, default="")
@click.pass_context
def holders(context: click.Context, pod: str) -> int:
    """Which pod holds which devices; of POD alone, or of the namespace (-n), or of all (-A)."""
    session = current(context)
    if pod and session.flags.is_all_namespaces:
        raise UsageProblem("a pod has one namespace", "leave out -A, or the pod's name")
    reader = Reader(session.api, session.screen)
    try:
        found = _of_pod(reader, session.namespace, pod) if pod else reader.pod_devices(session.namespace)
    except Forbidden as exc:
        found = _by_node_devices(reader, session.namespace, pod, exc)
    if pod and found:
        found = _of_live_pod(reader, session.namespace, pod, found)
    lines = [line for each in found for line in _lines(each)]
    if session.screen.is_for_machines:
        session.screen.data("HolderList", {"items": [_data(each) for each in lines]})
    else:
        _show(session, reader, lines, pod)
    return FINE


def _of_pod(reader: Reader, namespace: str, pod: str) -> list[PodDevice]:
    """Return [] if the pod has no devices. Raises ApiError if it does not exist."""
    name = f"{namespace}/{pod}"
    try:
        return [reader.api.record(PodDevice, f"{POD_DEVICES} {name}", path_of(GROUP, POD_DEVICES, pod, namespace))]
    except NotFound:
        # The pod or the kind may be missing, or the pod has no devices.
        reader.pod_devices(namespace)
        reader.api.get(f"pod {name}", PODS.path(pod, namespace))
        return []


def _of_live_pod(reader: Reader, namespace: str, pod: str, found: list[PodDevice]) -> list[PodDevice]:
    """Leave out devices of an earlier pod with that name: its PodDevice exists for a while. Raises ApiError."""
    name = f"{namespace}/{pod}"
    live = if_readable(lambda: reader.api.record(Object, f"pod {name}", PODS.path(pod, namespace)))
    kept = [each for each in found if live is None or each.pod_uid == live.meta.uid]
    if len(kept) < len(found):
        reader.screen.note(f"devices of an earlier pod {name} are left out")
    return kept


def _by_node_devices(reader: Reader, namespace: str, pod: str, why: Forbidden) -> list[PodDevice]:
    """Build the same from NodeDevices, for people who may not see PodDevices. Raises `why` for people who may see neither."""
    every = reader.each_node_device()
    try:
        # an ended pod has no PodDevice either
        found = [_as_pod_device(of, held) for of in every for held in of.allocations if not held.releasing]
    except Forbidden:
        raise why from None
    wanted = [each for each in found if namespace in ("", each.meta.namespace) and pod in ("", each.meta.name)]
    return sorted(wanted, key=lambda each: (each.meta.namespace, each.meta.name))


def _as_pod_device(found: NodeDevice, held: Allocation) -> PodDevice:
    known = {each.id: each for each in found.devices}
    ids = [(each, 0) for each in held.device_ids] + [(each.parent, each.parts) for each in held.parts]
    devices = tuple(one for each, parts in ids for one in _held(known.get(each, Device(each)), parts, held))
    resource = HeldResource(found.resource, found.driver, found.pool, devices)
    meta = Meta(held.pod, held.namespace, created=held.since)
    return PodDevice(meta, found.node, held.pod_uid, containers=(HoldingContainer(held.container, (resource,)),))


def _held(device: Device, parts: int, held: Allocation) -> Iterator[HeldDevice]:
    """Yield a device of a claim once for each of its shares."""
    of = device.parts.total if device.parts and parts else 0
    claim = held.claim or Claim("")
    for share in [each for each in claim.devices if each.id == device.id] or [ClaimedDevice(device.id)]:
        yield HeldDevice(device.id, device.health, device.numa_nodes, parts, of, claim.name, share.share_id)


def data_of_pod(found: PodDevice) -> list[dict[str, Any]]:
    """The devices of a pod, for programs."""
    return [_data(line) for line in _lines(found)]


def _lines(found: PodDevice) -> Iterator[Line]:
    for container in found.containers:
        for resource in container.resources:
            for device in resource.devices:
                yield Line(found, container.name, resource, device)


def _show(session: Session, reader: Reader, lines: list[Line], pod: str) -> None:
    screen, namespace = session.screen, session.namespace
    if not lines:
        where = f"namespace {namespace}" if namespace else "this cluster"
        screen.line(f"{namespace}/{pod} holds no devices." if pod else f"No pod of {where} holds devices.")
        return
    wide = ("CLAIM", "NUMA") if screen.is_wide else ()
    table = Table(("NAMESPACE", "POD", "CONTAINER", "NODE", "RESOURCE", "DEVICE", "HEALTH", "SINCE", *wide))
    for line in lines:
        meta, device = line.found.meta, line.device
        parts = f" ({device.parts} of {device.of})" if device.of else ""
        cells: list[str | Cell] = [
            meta.namespace,
            meta.name,
            line.container,
            line.found.node,
            line.resource.name,
            f"{device.id}{parts}",
            Cell(device.health or "-", _STYLES.get(device.health, PLAIN)),
            age(meta.created, reader.now) or "-",
        ]
        extra = (device.claim or "-", ",".join(map(str, device.numa_nodes)) or "-") if wide else ()
        table.add(*cells, *extra)
    screen.table(table)


def _data(line: Line) -> dict[str, Any]:
    meta, device = line.found.meta, line.device
    return {
        "namespace": meta.namespace,
        "pod": meta.name,
        "podUID": line.found.pod_uid,
        "container": line.container,
        "node": line.found.node,
        "resource": line.resource.name,
        "driver": line.resource.driver,
        "id": device.id,
        "health": device.health,
        "parts": device.parts,
        "of": device.of,
        "claim": device.claim,
        "shareID": device.share_id,
        "since": meta.created,
    }
