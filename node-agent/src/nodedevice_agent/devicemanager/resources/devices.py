"""Devices as a plugin lists them. Their IDs are in the shown form, see nodedevice_api.device_ids.

Source: kubelet deviceplugin v1beta1, ListAndWatch. The kubelet counts an ID that is listed twice with different health in both
sets; here an ID is counted once, and is reported.
"""

import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from itertools import chain, islice, zip_longest
from types import MappingProxyType
from typing import Any, ClassVar, Final

import msgspec
from nodedevice_api.device_ids import ShortenedID, long_octets
from nodedevice_api.names import Reason
from nodedevice_api.parts import PartRules, parent_and_number

from nodedevice_agent.devicemanager.derived import Record

# A longer ID would not fit into the kubelet's 4 MiB for a whole list.
MAX_ID_OCTETS = 4 * 1024 * 1024
# An octet of a long ID counts as many as JSON may need for it: the list is written into the checkpoint, and so its file stays below
# the size that is read.
_OCTETS_IN_JSON = 6
MAX_NUMA_NODES = 64
# The CRD's bound; a real machine has a few dozen.
MAX_NUMA_NODE = 2**31 - 1
# Of all plugins of a node: as many as 32 NodeDevices could name, or one for each MiB of 128 GiB. More would delay all that the
# agent must respond in time (the container runtime within two seconds, for example) and cost more than some 100 MiB.
MAX_DEVICES = 32 * 4096
# The same limit for the kubelet's own plugins, which are only shown: devices that the agent allocates come first.
MAX_DEVICES_OF_KUBELET = 16 * 4096
# After a plugin has gone, a longer list only keeps the names of claimed devices.
MAX_KEPT_OF_GONE = 256
# In memory: a device with its places in the list, less its ID; and an attribute, less its name and its value.
_DEVICE_OCTETS, _ATTRIBUTE_OCTETS = 192, 72
TOO_MANY = (
    f"the device plugins of a node may list {MAX_DEVICES} devices in all; the latest list of this one alone exceeds that and is "
    "refused, and the list before it counts: have it list fewer, coarser devices"
)
# one shared object for fields that are empty in most lists
NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})
_NO_IDS: Final[frozenset[str]] = frozenset()
# IDs per sort
_A_RUN = 4096
_EXAMPLES_NAMED = 3
_EXAMPLE_CHARACTERS = 40


class Size(msgspec.Struct, frozen=True, gc=False):
    """The size of device lists. octets: approximate memory."""

    devices: int = 0
    octets: int = 0

    def __add__(self, other: "Size") -> "Size":
        return Size(self.devices + other.devices, self.octets + other.octets)

    def __sub__(self, other: "Size") -> "Size":
        return Size(self.devices - other.devices, self.octets - other.octets)

    def of(self, devices: int) -> "Size":
        """Of so many of them."""
        return Size(devices, self.octets * devices // self.devices) if self.devices else self


# untracked by the garbage collector, which would traverse a hundred thousand of them within a turn of the event loop
class Device(msgspec.Struct, frozen=True, gc=False):
    """numa_nodes: sorted, empty when the plugin reports no topology. reason, message: why it is unhealthy. attributes: further
    properties, sorted by name. parent: ID of its physical device, its own ID for a whole one. part_size: of a physical device in
    ListedDevices.parents, the size of one part. Only some plugins report these.

    identity, files, is_shared, aliases: see DeviceDetails; of built-in plugins alone. files: number by path, sorted. listed_as: its
    ID in the plugin's list, if that differs.
    """

    id: str
    healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    reason: str = ""
    message: str = ""
    attributes: tuple[tuple[str, str], ...] = ()
    parent: str = ""
    part_size: str = ""
    identity: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    is_shared: bool = False
    aliases: tuple[str, ...] = ()
    listed_as: str = ""

    @property
    def is_unconfirmed(self) -> bool:
        """Whether its built-in plugin cannot read its current identity. Devices of other plugins never have that reason."""
        return self.healthy and self.reason == Reason.DEVICE_UNCONFIRMED


class ListedDevices(Record, frozen=True, eq=False):
    """A complete list: accepted devices by ID. id_error: a sentence about the rejected IDs, empty without any.

    plugin_message: the plugin's own error about the resource as a whole. part_rules: of devices that are interchangeable parts.
    parents: details of the physical devices of parts, by ID; only reason, message, attributes, part_size count. omitted: the number
    of further devices of a plugin that has gone. counted: the number of further healthy devices of a list that is only shown here;
    no pod holds one of them. is_refused: the plugin's latest list exceeds a limit, which id_error names; this is the list before
    it.

    The other values are computed once, when the list is decoded: every pod and every publication reads them. size: of the plugin's
    list, also of a refused one. ids, healthy_ids, unhealthy_ids: as the plugin reports them, sorted. by_parent: sorted IDs of the
    devices of each physical device. has_identities, has_aliases: of any device. kinds: the IDs of each device with an identity, or
    of several that are shared and alike. unconfirmed: healthy devices that are counted but not allocated, as their built-in plugin
    cannot read their current identity. at_nodes: the number of devices at each set of NUMA nodes; empty without NUMA nodes.
    """

    UNCOMPARED: ClassVar = frozenset(
        (
            *("size", "ids", "healthy_ids", "unhealthy_ids", "by_parent"),
            *("has_identities", "has_aliases", "kinds", "unconfirmed", "at_nodes"),
        )
    )

    devices: Mapping[str, Device]
    id_error: str = ""
    plugin_message: str = ""
    part_rules: PartRules | None = None
    parents: Mapping[str, Device] = msgspec.field(default_factory=lambda: NOTHING)
    omitted: int = 0
    counted: int = 0
    is_refused: bool = False
    # derived
    size: Size = Size()
    ids: tuple[str, ...] = ()
    healthy_ids: tuple[str, ...] = ()
    unhealthy_ids: tuple[str, ...] = ()
    by_parent: Mapping[str, Sequence[str]] = msgspec.field(default_factory=lambda: NOTHING)
    has_identities: bool = False
    has_aliases: bool = False
    kinds: Mapping[object, tuple[Device, Sequence[str]]] = msgspec.field(default_factory=lambda: NOTHING)
    unconfirmed: frozenset[str] = frozenset()
    at_nodes: Mapping[tuple[int, ...], int] = msgspec.field(default_factory=lambda: NOTHING)

    def __post_init__(self) -> None:
        ids = tuple(sorted_in_pieces(self.devices))
        unhealthy = tuple([i for i in ids if not self.devices[i].healthy])
        by_parent: dict[str, list[str]] = {}
        has_identities = has_aliases = False
        unconfirmed = []
        octets = _DEVICE_OCTETS * len(ids) + sum(map(sys.getsizeof, ids)) + sum(map(_octets, self.parents.values()))
        octets += _OCTETS_IN_JSON * long_octets(ids)
        for device_id in ids:
            device = self.devices[device_id]
            if device.attributes or device.message or device.numa_nodes:
                octets += _octets(device)
                if device.is_unconfirmed:
                    unconfirmed.append(device_id)
            if parent := device.parent:
                by_parent.setdefault(parent, []).append(device_id)
            has_identities = has_identities or bool(device.identity)
            has_aliases = has_aliases or bool(device.aliases)
        at_nodes = Counter(device.numa_nodes for device in self.devices.values())
        _set(
            self,
            size=Size(len(ids), octets),
            ids=ids,
            healthy_ids=tuple([i for i in ids if self.devices[i].healthy]) if unhealthy else ids,
            unhealthy_ids=unhealthy,
            by_parent=by_parent or NOTHING,
            has_identities=has_identities,
            has_aliases=has_aliases,
            kinds=_kinds(self.devices.values()) if has_identities else NOTHING,
            unconfirmed=frozenset(unconfirmed) if unconfirmed else _NO_IDS,
            at_nodes=at_nodes if any(at_nodes) else NOTHING,
        )

    def refused(self, why: str) -> "ListedDevices":
        """Mark this list as the one before a refused list, with the reason of the refusal."""
        if self.is_refused and self.id_error == why:
            return self
        return _set(copy(self), id_error=why, is_refused=True)

    def of_gone(self, claimed: Collection[str]) -> "ListedDevices":
        """The part of the list that is kept after its plugin has gone: of a long list the claimed devices and their siblings, and a
        count.
        """
        if len(self.ids) <= MAX_KEPT_OF_GONE:
            return self
        parents = {self.devices[i].parent for i in claimed if i in self.devices}
        ids = {i for i in claimed if i in self.devices}.union(*(self.by_parent.get(p, ()) for p in parents))
        if len(ids) == len(self.ids):
            return self
        return ListedDevices(
            {i: self.devices[i] for i in self.ids if i in ids},
            part_rules=self.part_rules,
            parents={p: device for p, device in self.parents.items() if p in parents},
            omitted=self.omitted + self.counted + len(self.ids) - len(ids),
        )

    def with_unhealthy(self, more: Mapping[str, Device]) -> "ListedDevices":
        """Add unhealthy devices. For a few this costs much less than deriving everything."""
        by_parent = {**self.by_parent}
        for device_id, device in sorted(more.items()):
            if device.parent:
                by_parent[device.parent] = sorted((*by_parent.get(device.parent, ()), device_id))
        return _set(
            copy(self),
            devices={**self.devices, **more},
            # two sequences in order, which sorted() detects
            ids=tuple(sorted(chain(self.ids, sorted(more)))),
            unhealthy_ids=tuple(sorted(chain(self.unhealthy_ids, sorted(more)))),
            by_parent=by_parent or NOTHING,
            has_identities=self.has_identities or any(device.identity for device in more.values()),
            has_aliases=self.has_aliases or any(device.aliases for device in more.values()),
            at_nodes=_added(self, more.values()),
        )


def _set(listed: ListedDevices, **values: object) -> ListedDevices:
    for name, value in values.items():
        msgspec.structs.force_setattr(listed, name, value)
    return listed


def sorted_in_pieces(ids: Iterable[str]) -> list[str]:
    """Sort in steps: sorted() of a hundred thousand IDs takes a tenth of a second in one C call, which blocks other threads."""
    rest = iter(ids)
    runs: list[list[str]] = []
    while run := sorted(islice(rest, _A_RUN)):
        runs.append(run)
    while len(runs) > 1:
        # two sorted runs are merged
        runs = [sorted([*first, *second]) for first, second in zip_longest(runs[::2], runs[1::2], fillvalue=())]
    return runs[0] if runs else []


def unheld(refused: ListedDevices) -> ListedDevices:
    """Change a refusal for a list that is not kept until it fits: the plugin must send it again."""
    return no_list(Size(MAX_DEVICES + 1, refused.size.octets), f"{refused.id_error}, and restart it then")


def _octets(device: Device) -> int:
    texts = (device.reason, device.message, *chain.from_iterable(device.attributes))
    return (
        _ATTRIBUTE_OCTETS * len(device.attributes) + sum(map(sys.getsizeof, texts)) + sys.getsizeof(device.numa_nodes)
    )


def _added(listed: ListedDevices, more: Collection[Device]) -> Mapping[tuple[int, ...], int]:
    at_nodes = Counter(device.numa_nodes for device in more)
    if not listed.at_nodes and not any(at_nodes):
        return NOTHING
    return at_nodes + Counter(listed.at_nodes or {(): len(listed.devices)})


def _kinds(devices: Iterable[Device]) -> Mapping[object, tuple[Device, Sequence[str]]]:
    """See ListedDevices.kinds, by what the devices of each have alike."""
    kinds: dict[object, tuple[Device, list[str]]] = {}
    for device in devices:
        if device.identity:
            alike = (device.identity, device.parent) if device.is_shared else device.id
            kinds.setdefault(alike, (device, []))[1].append(device.id)
    return kinds


NO_DEVICES = ListedDevices({})


def no_list(size: Size, why: str) -> ListedDevices:
    """A placeholder for a refused list, which keeps the list before it in force. size: of the refused list."""
    return _set(NO_DEVICES.refused(why), size=size)


class _Examples(msgspec.Struct):
    """Counts IDs and keeps the first few of them; bounded in number and length."""

    count: int = 0
    _examples: list[str] = []

    def add(self, device_id: str) -> None:
        self.count += 1
        shown = device_id[:_EXAMPLE_CHARACTERS]
        # one more than is shown, to detect further ones
        if len(self._examples) <= _EXAMPLES_NAMED and shown not in self._examples:
            self._examples.append(shown)

    def __str__(self) -> str:
        # ascii() also escapes line breaks and control characters for logs and conditions
        named = ", ".join(map(ascii, self._examples[:_EXAMPLES_NAMED]))
        return named + (", …" if len(self._examples) > _EXAMPLES_NAMED else "")


def accept(
    listed: Iterable[Device],
    plugin_message: str = "",
    known: ListedDevices = NO_DEVICES,
    part_rules: PartRules | None = None,
    parents: Mapping[str, Device] | None = None,
    counted: int = 0,
) -> ListedDevices:
    """Validate a plugin's list: each ID counts once (unhealthy wins over healthy), IDs that are too long are left out and reported.
    With part_rules each ID must be that of a part of its parent. A list of more than MAX_DEVICES is refused whole: `known` stays.

    known: the list before it. Equal parts, the whole list or single devices, are taken from it, so that comparing the two lists is
    fast (by identity). counted: see ListedDevices.
    """
    devices: dict[str, Device] = {}
    duplicate, too_long, no_part = _Examples(), _Examples(), _Examples()
    for number, device in enumerate(listed):
        if number == MAX_DEVICES:
            return known.refused(TOO_MANY)
        if isinstance(device.id, ShortenedID) and device.id.octets > MAX_ID_OCTETS:
            too_long.add(device.id)
            continue
        if part_rules is not None and not _is_part(device):
            no_part.add(device.id)
            continue
        earlier = devices.get(device.id)
        if earlier is not None:
            duplicate.add(device.id)
            if not earlier.healthy:
                continue
        if (same := known.devices.get(device.id)) is not None:
            # one object for equal IDs, as later lists contain the same IDs
            device = same if same == device else msgspec.structs.replace(device, id=same.id)
        devices[device.id] = device
    id_error = _id_error(duplicate, too_long, no_part)
    if counted:
        id_error = f"the list is too long to be shown whole: {len(devices)} devices are known by ID, and {counted} by their number"
    found = ListedDevices(devices, id_error, plugin_message, part_rules, parents or NOTHING, counted=counted)
    return known if found == known else found


def part_number(device_id: str) -> int:
    """The number of a part; -1 for an ID of another form."""
    found = parent_and_number(device_id)
    return found[1] if found is not None else -1


def _is_part(device: Device) -> bool:
    part = parent_and_number(device.id)
    return part is not None and part[0] == device.parent


def _id_error(duplicate: _Examples, too_long: _Examples, no_part: _Examples) -> str:
    parts = []
    if duplicate.count:
        parts.append(f"{duplicate.count} listed more than once and counted once ({duplicate})")
    if too_long.count:
        parts.append(f"{too_long.count} rejected ({too_long}): an ID has {MAX_ID_OCTETS // 1024 // 1024} MiB at most")
    if no_part.count:
        parts.append(f"{no_part.count} rejected ({no_part}): the ID of a part is its parent's, :: and a number")
    return "the device plugin listed invalid device IDs: " + "; ".join(parts) if parts else ""
