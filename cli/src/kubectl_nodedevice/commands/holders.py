"""`kubectl nodedevice holders`: which pod holds which devices. The other way round than `devices`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from kubectl_nodedevice.api import POD_DEVICES, core_path, path_of
from kubectl_nodedevice.cluster import HeldDevice, HeldResource, PodDevice
from kubectl_nodedevice.errors import FINE, NotFound, UsageProblem
from kubectl_nodedevice.objects import pod_device_of
from kubectl_nodedevice.output import BAD, GOOD, Cell, Table
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.session import Command, Session, current
from kubectl_nodedevice.text import age


@dataclass(frozen=True, slots=True)
class Line:
    """One device of one container."""

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
    found = _of_pod(reader, session.namespace, pod) if pod else reader.pod_devices(session.namespace)
    lines = [line for each in found for line in _lines(each)]
    if session.screen.is_for_machines:
        session.screen.data("HolderList", {"items": [_data(each) for each in lines]})
    else:
        _show(session, reader, lines, pod)
    return FINE


def _of_pod(reader: Reader, namespace: str, pod: str) -> list[PodDevice]:
    """None where the pod holds nothing. Raises ApiError where there is no such pod."""
    name = f"{namespace}/{pod}"
    try:
        return [pod_device_of(reader.api.get(f"{POD_DEVICES} {name}", path_of(POD_DEVICES, pod, namespace)))]
    except NotFound:
        # whether there is no such pod, no such kind, or nothing that it holds
        reader.pod_devices(namespace)
        reader.api.get(f"pod {name}", core_path("pods", pod, namespace))
        return []


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
            Cell(
                device.health or "-",
                GOOD if device.health == "Healthy" else BAD if device.health == "Unhealthy" else "",
            ),
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
