"""Decodes the messages of the kubelet's pod resources API, long ones in slices. No message object leaves this file.

Kubelets since 1.36 also send devices of claims, one row each. Drivers choose their names freely: invalid ones are omitted.
Source: kubelet pkg/kubelet/apis/podresources v1, pkg/kubelet/cm container_manager_linux.go GetDynamicResources @ 1.37.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final

from nodedevice_api.device_ids import shown_id
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.devices import MAX_DEVICES_OF_KUBELET, NOTHING
from nodedevice_agent.devicemanager.resources.list_limit import MAX_SMALL_LIST
from nodedevice_agent.kubelet import readings
from nodedevice_agent.lib.wire_fields import fields

# Limits of a node and of one pod. The API allows 4,096 devices in a NodeDevice and 32 in a claim.
MAX_CLAIM_ROWS: Final = 4096
MAX_CLAIM_ROWS_OF_POD: Final = 1024
_MAX_CDI_IDS: Final = 32
_MAX_CDI_ID: Final = 256
_MAX_SHARE_ID: Final = 36
# as the API validates them in slices and claims
_LABEL: Final = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_POOL: Final = re.compile(rf"{_LABEL.pattern}([./]{_LABEL.pattern})*")
_DRIVER: Final = re.compile(rf"{_LABEL.pattern}([.]{_LABEL.pattern})*", re.IGNORECASE | re.ASCII)
_MAX_DRIVER, _MAX_DEVICE, _MAX_NAME = 63, 63, 253
_NOTHING: Final = readings.HeldByPod()
# device IDs by container, resource name and themselves
_Known = Mapping[tuple[str, str, tuple[str, ...]], tuple[str, ...]]
# entries parsed at once: no other thread runs during that time
_A_SLICE: Final = 512
_DEVICES: Final = api_pb2.AllocatableResourcesResponse.DEVICES_FIELD_NUMBER
_NAME_TAG: Final = api_pb2.ContainerDevices.RESOURCE_NAME_FIELD_NUMBER << 3 | 2


def all_rows(octets: bytes, entries: Iterable[Allocation] = ()) -> readings.RowsByPod:
    """Decode a ListPodResourcesResponse. entries: of the checkpoint; equal device IDs share their objects. Raises DecodeError."""
    rows: readings.RowsByPod = {}
    same = {(entry.container, entry.resource_name, entry.device_ids): entry.device_ids for entry in entries}
    room = MAX_CLAIM_ROWS
    for number, _, begin, end in fields(octets):
        if number != api_pb2.ListPodResourcesResponse.POD_RESOURCES_FIELD_NUMBER:
            continue
        pod = api_pb2.PodResources.FromString(octets[begin:end])
        found = _held(pod, room, same)
        if found != _NOTHING:
            room -= len(found.claim_rows)
            # a name may be listed twice, such as that of a static pod and its successor
            known = rows.get((pod.namespace, pod.name), _NOTHING)
            rows[pod.namespace, pod.name] = readings.HeldByPod(
                known.rows + found.rows, known.claim_rows + found.claim_rows
            )
    return rows


def rows_of_pod(octets: bytes) -> readings.HeldByPod:
    """Decode a GetPodResourcesResponse. Raises DecodeError."""
    return _held(api_pb2.GetPodResourcesResponse.FromString(octets).pod_resources, MAX_CLAIM_ROWS_OF_POD)


def healthy_devices(
    octets: bytes,
    before: readings.HealthyDevices = readings.NO_DEVICES,
    held: Mapping[str, Collection[str]] = readings.NO_HOLDERS,
) -> readings.HealthyDevices:
    """Decode an AllocatableResourcesResponse. An unchanged resource keeps its object. Raises DecodeError.

    If the node exceeds its limit of devices, each resource gets an equal share: held devices first, then known ones, then
    others. The rest is counted. held: device IDs that pods hold, by resource name.
    """
    lists = _lists(octets)
    is_much = sum(entries.count for entries in lists.values()) > MAX_DEVICES_OF_KUBELET
    share = max(MAX_SMALL_LIST, MAX_DEVICES_OF_KUBELET // len(lists)) if is_much else MAX_DEVICES_OF_KUBELET
    devices: dict[str, readings.DevicesByID] = {}
    omitted: dict[str, int] = {}
    digests: dict[str, tuple[int, ...]] = {}
    for name, entries in lists.items():
        digests[name] = (*entries.digest, share)
        wanted, known = held.get(name, ()), before.devices.get(name)
        is_whole = entries.count <= share
        if known is not None and before.digests.get(name) == digests[name] and (is_whole or {*wanted} <= known.keys()):
            devices[name] = known
        else:
            strings = {i: str(i) for i in chain(wanted, known or ())}
            kept = () if is_whole else strings
            devices[name] = _devices(octets, entries.places, kept, max(share, len(wanted)), strings)
        if not is_whole:
            omitted[name] = entries.count - len(devices[name])
    return readings.HealthyDevices(devices, omitted, digests)


class _List:
    """The entries of one resource, one for each device and NUMA node. places: slices of some hundred entries."""

    def __init__(self) -> None:
        self.count = self._sum = 0
        self.places: list[list[int]] = []

    def add(self, entry: bytes, begin: int, end: int) -> None:
        if self.places and self.places[-1][1] == begin and self.count % _A_SLICE:
            self.places[-1][1] = end
        else:
            self.places.append([begin, end])
        self.count += 1
        # the kubelet's order changes with each call; the hash is keyed, so no plugin can provoke equal sums
        self._sum += hash(entry)

    @property
    def digest(self) -> tuple[int, int]:
        return self.count, self._sum


def _lists(octets: bytes) -> dict[str, _List]:
    """Return the entries by resource name."""
    lists: dict[bytes, _List] = {}
    for number, begin, content, end in fields(octets):
        if number != _DEVICES:
            continue
        entry = octets[content:end]
        # the kubelet's encoder writes the name first
        if len(entry) > 1 and entry[0] == _NAME_TAG and entry[1] < 0x80:
            name = entry[2 : 2 + entry[1]]
        else:
            name = api_pb2.ContainerDevices.FromString(entry).resource_name.encode()
        found = lists.get(name)
        if found is None:
            found = lists[name] = _List()
        found.add(entry, begin, end)
    return {name.decode(errors="replace"): found for name, found in lists.items()}


def _devices(
    octets: bytes, places: Iterable[Sequence[int]], kept: Collection[str], most: int, strings: Mapping[str, str]
) -> readings.DevicesByID:
    """Return at most `most` devices; the ones in `kept` come first, in its order. strings: IDs that are in memory already."""
    found: dict[str, tuple[int, ...]] = {}
    others: dict[str, tuple[int, ...]] = {}
    for begin, end in places:
        for entry in api_pb2.AllocatableResourcesResponse.FromString(octets[begin:end]).devices:
            nodes = {node.ID for node in entry.topology.nodes}
            for shown in map(shown_id, entry.device_ids):
                device_id = strings.get(shown) or str(shown)
                among = found if device_id in kept else others
                known = among.get(device_id)
                if known is None and len(nodes) <= 1:
                    if among is found or len(others) < most:
                        among[device_id] = _at(*nodes)
                else:
                    among[device_id] = tuple(sorted(nodes.union(known or ())))
    if not kept:
        return others
    ordered = {device_id: found[device_id] for device_id in kept if device_id in found}
    return dict(islice((ordered | others).items(), most))


@lru_cache
def _at(*nodes: int) -> tuple[int, ...]:
    """Return one shared object for all devices with these NUMA nodes."""
    return nodes


def _held(pod: api_pb2.PodResources, room: int, known: _Known = NOTHING) -> readings.HeldByPod:
    """Return the rows of one pod. room: the maximum number of claim rows."""
    of_claims = islice(_claim_rows(pod), min(room, MAX_CLAIM_ROWS_OF_POD))
    return readings.HeldByPod(tuple(_rows(pod, known)), tuple(of_claims))


def _claim_rows(pod: api_pb2.PodResources) -> Iterator[readings.ClaimRow]:
    for container in pod.containers:
        for claim in container.dynamic_resources:
            # a claim is always in the namespace of its pod
            if claim.claim_namespace == pod.namespace and 0 < len(claim.claim_name) <= _MAX_NAME:
                for device, cdi_ids in _with_cdi_ids(claim.claim_resources):
                    if _is_device(device):
                        yield readings.ClaimRow(
                            pod.namespace,
                            pod.name,
                            container.name,
                            claim.claim_name,
                            device.driver_name,
                            device.pool_name,
                            device.device_name,
                            device.share_id[:_MAX_SHARE_ID],
                            cdi_ids,
                        )


def _with_cdi_ids(
    devices: Iterable[api_pb2.ClaimResource],
) -> Iterator[tuple[api_pb2.ClaimResource, tuple[str, ...]]]:
    """Yield each device with its own CDI names: the kubelet also lists the names of the same driver's preceding devices."""
    driver, before = "", list[str]()
    for device in devices:
        names = [cdi_device.name for cdi_device in device.cdi_devices]
        is_longer = device.driver_name == driver and names[: len(before)] == before
        added = names[len(before) :] if is_longer else names
        driver, before = device.driver_name, names
        yield device, tuple(name for name in added[:_MAX_CDI_IDS] if 0 < len(name) <= _MAX_CDI_ID)


def _is_device(device: api_pb2.ClaimResource) -> bool:
    driver, pool, name = device.driver_name, device.pool_name, device.device_name
    return (
        len(driver) <= _MAX_DRIVER
        and len(pool) <= _MAX_NAME
        and len(name) <= _MAX_DEVICE
        and _DRIVER.fullmatch(driver) is not None
        and _POOL.fullmatch(pool) is not None
        and _LABEL.fullmatch(name) is not None
    )


def _rows(pod: api_pb2.PodResources, known: _Known) -> Iterable[PodResourcesRow]:
    for container in pod.containers:
        ids: dict[str, set[str]] = {}
        for devices in container.devices:
            ids.setdefault(devices.resource_name, set()).update(map(shown_id, devices.device_ids))
        for resource_name in sorted(ids):
            device_ids = tuple(sorted(ids[resource_name]))
            device_ids = known.get((container.name, resource_name, device_ids), device_ids)
            yield PodResourcesRow(pod.namespace, pod.name, container.name, resource_name, device_ids)
