"""Decodes the messages of the device plugin API. No message object leaves this folder. Source: kubelet deviceplugin v1beta1."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import chain, islice, repeat
from typing import TypeVar

from google.protobuf.message import DecodeError, Message
from msgspec import structs
from nodedevice_api import device_details_pb2
from nodedevice_api.device_details_pb2 import ContainerAllocateDetails, DeviceDetails, DeviceListDetails
from nodedevice_api.device_ids import ESCAPED, is_ordinary, shown_id
from nodedevice_api.extended_resources import domain_of
from nodedevice_api.parts import Advertise, Choice, PartRules, Placement, PodPlacement
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2
from nodedevice_kube.interning import intern

from nodedevice_agent.devicemanager import container_edits
from nodedevice_agent.devicemanager.allocation.answer_limit import answer_problem
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.devices import (
    MAX_DEVICES,
    MAX_NUMA_NODE,
    MAX_NUMA_NODES,
    NO_DEVICES,
    TOO_MANY,
    Device,
    ListedDevices,
    Size,
    accept,
    no_list,
)
from nodedevice_agent.lib.wire_fields import fields

HEALTHY = "Healthy"
# a plugin that is not built in may leave it out
_HEALTHS = frozenset({HEALTHY, "Unhealthy", ""})
# The bound of one response: each entry takes 1.5 µs in the event loop. A variable has at least two bytes.
MAX_ENTRIES = 16 * 1024

# the CRD's bounds for a device's details
_MAX_PART_SIZE = 64
_MAX_REASON, _MAX_MESSAGE, _MAX_ATTRIBUTES, _MAX_ATTRIBUTE, _MAX_WORD = 128, 1024, 32, 256, 40
# ... and for the attributes of all devices together; the CRD has 4096 devices
_MAX_ATTRIBUTES_OF_ALL = 4096 * _MAX_ATTRIBUTES
# Twice as much as 4096 devices with a KiB each. Parsed, attributes take twenty times as much memory.
_MAX_DETAILED_BYTES = 8 * 1024 * 1024
# NUMA nodes or attributes of one device that are read, to select the accepted ones
_MAX_READ = 1024
# the bound of all devices together: a few for each device of the longest list
MAX_NODES_OF_ALL = 4 * MAX_DEVICES
_MAX_PARENTS = 4096
# bytes parsed at once: some thousand devices; and the size of a device: only ID and health of a larger one are read
_SLICE_BYTES = 64 * 1024
MAX_DEVICE_BYTES = 256 * 1024
_DEVICES = DeviceListDetails.DEVICES_FIELD_NUMBER
_PARENTS = DeviceListDetails.PARENTS_FIELD_NUMBER
_OF_ALL = frozenset(DeviceListDetails.DESCRIPTOR.fields_by_number) - {_DEVICES, _PARENTS}
_ALL_PERCENT = 100
_NO_DETAILS = DeviceDetails()

_Word = TypeVar("_Word", bound=StrEnum)
_Message = TypeVar("_Message", bound=Message)


def device_list(
    octets: bytes, known: ListedDevices = NO_DEVICES, *, is_built_in: bool = False, most: int = MAX_DEVICES
) -> ListedDevices:
    """A ListAndWatchResponse, parsed in slices; known: as in accept().

    is_built_in: a plugin of this program sent it, so its identities are trusted. most: the number of devices with room; a
    longer list is refused before it is decoded. Raises DecodeError.
    """
    found = _Places(octets)
    if found.count > min(most, MAX_DEVICES):
        return no_list(Size(found.count, len(octets)), TOO_MANY)
    details = _extension(DeviceListDetails, found.rest)
    plugin_message = _plain(details.message or details.reason, _MAX_MESSAGE)
    try:
        # without parents the field belongs to another vendor
        is_ours = details.HasField("parts") and (not found.count or any(d and d.parent for _, d in found.devices()))
        rules = _part_rules(details.parts) if is_ours else None
    except ValueError as exc:
        # parts allocated by other rules could be useless to a container
        return ListedDevices({}, f"the device plugin's list is refused: {exc}")
    devices = _devices(found, known.devices, is_built_in=is_built_in)
    return accept(devices, plugin_message, known, rules, _parents(found.parents()))


def listed_devices(octets: bytes) -> Iterator[api_pb2.Device]:
    """The devices of a ListAndWatchResponse as the plugin sent them, parsed in the same slices. Raises DecodeError."""
    return (device for device, _ in _Places(octets).devices())


class _Places:
    """The positions of devices and their parents in a list, in slices to parse at once; stops when there are too many devices."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets
        self.count = 0
        self._slices: dict[int, list[list[int]]] = {_DEVICES: [], _PARENTS: []}
        rest: list[bytes] = []
        # the details of a very long list are not read
        self.is_detailed = len(octets) <= _MAX_DETAILED_BYTES
        for number, begin, _, end in fields(octets):
            if (slices := self._slices.get(number)) is not None:
                if slices and slices[-1][1] == begin and end - slices[-1][0] <= _SLICE_BYTES:
                    slices[-1][1] = end
                else:
                    slices.append([begin, end])
                self.count += number == _DEVICES
                if self.count > MAX_DEVICES:
                    break
            elif number in _OF_ALL and self.is_detailed and len(rest) < _MAX_READ:
                rest.append(octets[begin:end])
        # the fields of the resource as a whole
        self.rest = b"".join(rest)

    def devices(self) -> Iterator[tuple[api_pb2.Device, DeviceDetails | None]]:
        """Each device with its details; None if no device of its slice has any."""
        for octets in self._of(_DEVICES):
            plain = api_pb2.ListAndWatchResponse.FromString(octets)
            plain.DiscardUnknownFields()
            is_detailed = self.is_detailed and plain.ByteSize() != len(octets)
            details = _extension(DeviceListDetails, octets).devices if is_detailed else ()
            yield from zip(plain.devices, chain(details, repeat(None)), strict=False)

    def parents(self) -> Iterator[DeviceDetails]:
        """Physical devices."""
        for octets in self._of(_PARENTS) if self.is_detailed else ():
            yield from _extension(DeviceListDetails, octets).parents

    def _of(self, number: int) -> Iterator[bytes]:
        for begin, end in self._slices[number]:
            if end - begin <= MAX_DEVICE_BYTES:
                yield self._octets[begin:end]
            elif number == _DEVICES:
                yield _shortened(self._octets[begin:end])


def _shortened(octets: bytes) -> bytes:
    """A list of one device that takes too much, as with millions of NUMA nodes: only its ID and its health are kept."""
    kept: dict[int, bytes] = {}
    [(_, _, content, _)] = fields(octets)
    device = octets[content:]
    for number, begin, _, end in fields(device):
        if number in (api_pb2.Device.ID_FIELD_NUMBER, api_pb2.Device.HEALTH_FIELD_NUMBER):
            kept[number] = device[begin:end]
    short = api_pb2.Device.FromString(b"".join(kept.values()))
    return api_pb2.ListAndWatchResponse(devices=[short]).SerializeToString()


def holdings_required(octets: bytes) -> bool:
    """Whether the plugin serves DeviceHoldings, by its DevicePluginOptions."""
    return _extension(device_details_pb2.PluginOptionsDetails, octets).holdings_required


def _extension(kind: type[_Message], octets: bytes) -> _Message:
    """Our extension of a message; empty if it does not parse: another vendor may use our field numbers for anything."""
    try:
        return kind.FromString(octets)
    except DecodeError:
        return kind()


def _part_rules(rules: device_details_pb2.PartRules) -> PartRules:
    """Raises ValueError for an unknown word, and for an invalid percentage."""
    percent = rules.sm_percent if rules.HasField("sm_percent") else None
    if percent is not None and not 0 <= percent <= _ALL_PERCENT:
        raise ValueError(
            f"its rule sm_percent for parts is {percent}, and must be a percentage from 0 to {_ALL_PERCENT}"
        )
    return PartRules(
        _word("placement", Placement.ANY, rules.placement),
        _word("choice", Choice.BINPACK, rules.choice),
        _word("containers", PodPlacement.ANY, rules.containers),
        _word("advertise", Advertise.SUM, rules.advertise),
        percent,
    )


def _word(rule: str, default: _Word, word: str) -> _Word:
    if not word:
        return default
    try:
        return type(default)(word)
    except ValueError:
        known = ", ".join(type(default))
        raise ValueError(f"its rule {rule} for parts is {_plain(word, 40)!a}, and must be one of {known}") from None


def _parents(details: Iterable[DeviceDetails]) -> dict[str, Device]:
    found = (
        structs.replace(
            _device(api_pb2.Device(ID=parent.ID), parent, _attributes(parent)),
            part_size=_plain(parent.part_size, _MAX_PART_SIZE),
        )
        for parent in details
    )
    return {device.id: device for device in islice(found, _MAX_PARENTS) if is_ordinary(device.id)}


def _devices(found: _Places, known: Mapping[str, Device], *, is_built_in: bool) -> Iterator[Device]:
    attributes_left, nodes_left = _MAX_ATTRIBUTES_OF_ALL, MAX_NODES_OF_ALL
    for device, details in found.devices():
        nodes = _numa_nodes(device) if nodes_left > 0 and device.HasField("topology") else ()
        nodes_left -= len(nodes)
        if details is None and (health := device.health) in _HEALTHS:
            device_id = device.ID
            if device_id not in known or device_id.startswith(ESCAPED):
                device_id = shown_id(device_id)
            yield Device(device_id, health == HEALTHY, nodes)
            continue
        details = details or _NO_DETAILS
        attributes = _attributes(details) if details.attributes and attributes_left > 0 else ()
        attributes_left -= len(attributes)
        listed = _device(device, details, attributes, nodes)
        yield _with_identity(listed, details) if is_built_in else _of_others(listed)


def _of_others(device: Device) -> Device:
    """Drop reasons that only built-in plugins may use."""
    return structs.replace(device, reason="") if device.is_unconfirmed else device


def _device(
    device: api_pb2.Device,
    details: DeviceDetails,
    attributes: tuple[tuple[str, str], ...],
    numa_nodes: tuple[int, ...] = (),
) -> Device:
    reason, message = _plain(details.reason, _MAX_REASON), _plain(details.message, _MAX_MESSAGE)
    if not message and device.health not in _HEALTHS:
        # one shared string for all devices with that word
        message = intern(
            f'its plugin reports health "{_plain(device.health, _MAX_WORD)}", which is neither Healthy nor Unhealthy'
        )
    # The parent of many parts: one string for all of them.
    parent = intern(details.parent) if details.parent and is_ordinary(details.parent) else ""
    return Device(shown_id(device.ID), device.health == HEALTHY, numa_nodes, reason, message, attributes, parent)


def _with_identity(device: Device, details: DeviceDetails) -> Device:
    return structs.replace(
        device,
        identity=tuple(details.identity),
        files=tuple(sorted(details.files.items())),
        is_shared=details.shared,
        aliases=tuple(details.aliases),
    )


def _numa_nodes(device: api_pb2.Device) -> tuple[int, ...]:
    listed = islice(device.topology.nodes, _MAX_READ)
    return tuple(sorted({node.ID for node in listed if 0 <= node.ID <= MAX_NUMA_NODE})[:MAX_NUMA_NODES])


def _attributes(details: DeviceDetails) -> tuple[tuple[str, str], ...]:
    named = sorted(
        (_plain(name, _MAX_ATTRIBUTE), _plain(value, _MAX_ATTRIBUTE))
        for name, value in islice(details.attributes.items(), _MAX_READ)
    )
    return tuple({name: (name, value) for name, value in named if name}.values())[:_MAX_ATTRIBUTES]


def _plain(text: str, limit: int) -> str:
    """Any text of a plugin, bounded, printable and in one line."""
    return "".join(c if c.isprintable() else " " for c in text[:limit]) if text else ""


def allocate_details(call: CallAllocate, pod: Pod | None) -> ContainerAllocateDetails:
    """The container of the call, with the runtime's UID of its pod. pod: None if only its UID is known."""
    details = ContainerAllocateDetails(pod_uid=call.pod_uid, container=call.container)
    if pod is not None:
        details.pod_namespace, details.pod_name = pod.namespace, pod.name
        details.annotations.update(pod.annotations)
    return details


def allocate_response(message: api_pb2.ContainerAllocateResponse) -> container_edits.AllocateResponse:
    return container_edits.AllocateResponse(message.SerializeToString(deterministic=True), _edits(message))


def with_edits(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint with every stored response decoded; one that cannot be decoded has no edits.

    Responses beyond the bound for all count as lost, and Allocate is called again: an earlier agent had no such bound.
    """
    kept: Counter[str] = Counter()
    allocations = []
    for stored in checkpoint.allocations:
        allocation = with_edits_of(stored)
        if answer_problem(allocation.resource_name, allocation.octets, kept):
            allocation = structs.replace(allocation, response=None, edits=None)
        kept[domain_of(allocation.resource_name)] += allocation.octets
        allocations.append(allocation)
    return structs.replace(checkpoint, allocations=tuple(allocations))


def entries_of(message: api_pb2.ContainerAllocateResponse) -> int:
    """The number of variables, mounts, device files and other parts of a response."""
    parts = (message.envs, message.mounts, message.devices, message.annotations, message.cdi_devices)
    return sum(map(len, parts))


def with_edits_of(allocation: Allocation) -> Allocation:
    """The allocation with its response decoded if possible."""
    if allocation.response is None:
        return allocation
    try:
        message = api_pb2.ContainerAllocateResponse.FromString(allocation.response)
    except DecodeError:
        return allocation
    return structs.replace(allocation, edits=_edits(message)) if entries_of(message) <= MAX_ENTRIES else allocation


def _edits(message: api_pb2.ContainerAllocateResponse) -> container_edits.ContainerEdits:
    return container_edits.in_normal_form(
        container_edits.ContainerEdits(
            envs=dict(message.envs),
            mounts=tuple(
                container_edits.ContainerMount(m.container_path, m.host_path, m.read_only) for m in message.mounts
            ),
            devices=tuple(
                container_edits.DeviceFile(d.container_path, d.host_path, d.permissions) for d in message.devices
            ),
            annotations=dict(message.annotations),
            cdi_devices=tuple(device.name for device in message.cdi_devices),
        )
    )
