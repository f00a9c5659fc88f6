"""NodeDevice: the record of the fields that the operator uses. Records are equal whatever their resource versions."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_api import names
from nodedevice_api.nodedevice import (
    AllocationStatus,
    ClaimStatus,
    ConditionStatus,
    DeviceStatus,
    DeviceTaint,
    HeldParts,
    NodeDeviceStatus,
    PartCounts,
    Waiting,
)
from nodedevice_api.parts import Advertise
from nodedevice_kube.interning import intern

from nodedevice_operator.objects.meta import shared
from nodedevice_operator.objects.nodedevice_schema import NodeDeviceSchema, is_only_shown
from nodedevice_operator.objects.status_writers import editors, is_of_agent

# Reasons for which an agent ends a resource at once, without waiting for its plugin to return.
_ENDED: Final = frozenset({names.Reason.NOT_CONFIGURED, names.Reason.PLACE_TAKEN})
# Reasons of Ready False with which no device is missing that a pod holds.
_INTENDED: Final = frozenset({names.Reason.NO_DEVICES, names.Reason.ALL_CORDONED, names.Reason.NOT_CONFIGURED})
# Reasons of Unhealthy with which a device has not failed.
_NOT_FAILED: Final = frozenset({names.Reason.NOT_LISTED_YET, names.Reason.DRIVER_RELEASED})
# one write's worth; the others follow when these are set. And of cordons, so many are known by their IDs.
_MOST_LOST: Final = 256
_NOBODY: Final[frozenset[str]] = frozenset()
_KNOWN_CONDITIONS: Final = frozenset((*names.AGENT_CONDITIONS, *names.OPERATOR_CONDITIONS))

# of what a record keeps of its lists
_BYTES_OF_ENTRY: Final = 400
_BYTES_OF_TEXT: Final = 64
# Texts that no agent of ours writes that long.
LONGEST_TEXT: Final = 128
# Source: k8s.io/api/resource/v1, of a driver's name and a pool's.
_LONGEST_DRIVER: Final = 63
_LONGEST_POOL: Final = 253


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """A device that is allocated or not healthy; a free healthy one is only counted."""

    health: str
    reason: str
    is_missing: bool
    numa_nodes: tuple[int, ...]
    taints: tuple[DeviceTaint, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether its pod has lost it. A plugin without a list may still scan; a driver released on request has not failed."""
        return self.health == "Unhealthy" and self.reason not in _NOT_FAILED


@dataclass(frozen=True, slots=True)
class ClaimedShare:
    """A claim's details of a device, for PodDevices: its share, and the extended resource that the pod requested."""

    id: str
    share_id: str
    extended_resource: str


@dataclass(frozen=True, slots=True)
class AllocationRecord:
    """device_ids: whole devices, not parts. not_injected: it runs without these. claim, shares: with DRA."""

    namespace: str
    name: str
    pod_uid: str
    container: str
    device_ids: tuple[str, ...]
    omitted: int
    is_releasing: bool
    not_injected: bool = False
    parts: tuple[HeldParts, ...] = ()
    claim: str = ""
    shares: tuple[ClaimedShare, ...] = ()

    @property
    def devices(self) -> tuple[str, ...]:
        """IDs as in the list of devices: parts have the ID of their physical device."""
        return (*self.device_ids, *(held.parent for held in self.parts)) if self.parts else self.device_ids

    @property
    def count(self) -> int:
        return len(self.device_ids) + sum(held.parts for held in self.parts) + self.omitted


@dataclass(frozen=True, slots=True)
class StoredCondition:
    """A stored condition. `since` is the API's own text: written back, never computed with."""

    status: str
    reason: str
    message: str
    since: str
    observed_generation: int


@dataclass(frozen=True, slots=True)
class NodeDeviceRecord:
    """A NodeDevice. `has_status` is False until its agent has written a status, even if others have written into it.

    created, endpoint_since: the API's timestamps. cordons: their number; cordoned_ids: their devices, unless there are too many;
    cordoned_by: who set them, if noted.
    delivery: how devices reach containers there. served_by: who allocates the devices, as its agent reports; driver, pool: of DRA.
    lost_cordons: device IDs of cordons that a deleted predecessor had and it lacks; the first ones of many.
    edited_by: other field managers that have written status fields of the agent or the operator.
    parts: by ID of the physical device; empty without parts. largest_available: the most available parts of one device, if the Node
    shows only these and the allocated ones; else None.
    weight: the approximate memory of its lists, in bytes; 0 without lists.
    """

    name: str
    uid: str
    generation: int
    resource_version: int = field(compare=False)
    node: str
    resource: str
    owner_uid: str | None
    created: str = ""
    cordons: int = 0
    has_status: bool = False
    total: int = 0
    healthy: int = 0
    cordoned: int = 0
    allocated: int = 0
    releasing: int = 0
    reserved: int = 0
    available: int = 0
    endpoint: str | None = None
    endpoint_since: str = ""
    delivery: str = ""
    devices: Mapping[str, DeviceRecord] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    devices_omitted: int = 0
    allocations: tuple[AllocationRecord, ...] = ()
    allocations_omitted: int = 0
    waiting: tuple[Waiting, ...] = ()
    conditions: Mapping[str, StoredCondition] = field(default_factory=dict)
    edited_by: frozenset[str] = frozenset()
    weight: int = field(default=0, compare=False)
    lost_cordons: frozenset[str] = frozenset()
    parts: Mapping[str, PartCounts] = field(default_factory=dict)
    largest_available: int | None = None
    served_by: str = names.SERVED_BY_NODEDEVICE
    driver: str = ""
    pool: str = ""
    cordoned_ids: frozenset[str] = _NOBODY
    cordoned_by: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_only_shown(self) -> bool:
        """Whether the operator only shows it. Each feature that acts on NodeDevices checks this."""
        return is_only_shown(self.served_by, self.resource)

    @property
    def knows_cordons(self) -> bool:
        return len(self.cordoned_ids) == self.cordons

    @property
    def key(self) -> str:
        return self.name

    @property
    def age(self) -> tuple[str, str]:
        return self.created, self.name

    @property
    def is_gone(self) -> bool:
        """Whether its device plugin is gone for good and no container holds a device of it."""
        return self.endpoint == "Gone" and not (self.allocated or self.releasing)

    @property
    def is_unused(self) -> bool:
        """Whether it can be deleted without loss: it is gone, and has no allocations, waiting pods or cordons."""
        # cordons of a DRA driver's devices have no effect
        is_cordoned = (self.cordons or self.lost_cordons) and self.served_by != names.SERVED_BY_DRA
        is_needed = self.allocations or self.allocations_omitted or self.waiting or is_cordoned
        return self.is_gone and not is_needed

    @property
    def ended(self) -> str:
        """Why its agent has ended it at once, such as a removed configuration; "" otherwise. Pods keep their devices of it."""
        reason = self.reason_of(names.Condition.REGISTERED)
        return reason if reason in _ENDED else ""

    @property
    def is_over(self) -> bool:
        """Whether to delete it at once: it was ended, is unused, and the operator no longer advertises it."""
        is_withdrawn = self.is_only_shown or self.reason_of(names.Condition.ADVERTISED) in _ENDED
        return is_withdrawn and bool(self.ended) and self.is_unused

    @property
    def is_unready_by_intent(self) -> bool:
        """Whether it is not Ready and nothing is wrong: no hardware; no plugin, nor a held device; not configured; all cordoned."""
        reason = self.reason_of(names.Condition.READY)
        is_intended = reason in _INTENDED or (reason == names.Reason.ENDPOINT_GONE and self.is_gone)
        return is_intended and not self.is_condition(names.Condition.READY, "True")

    def reason_of(self, kind: str) -> str:
        """The reason of the stored condition of that type; "" without one."""
        stored = self.conditions.get(kind)
        return stored.reason if stored is not None else ""

    def is_condition(self, kind: str, status: str) -> bool:
        stored = self.conditions.get(kind)
        return stored is not None and stored.status == status

    def unhealthy(self) -> frozenset[str]:
        """IDs of unhealthy devices; none if its agent has ended it, as the health of held devices is then unknown."""
        if self.ended:
            return _NOBODY
        return frozenset(device_id for device_id, device in self.devices.items() if device.health == "Unhealthy")

    @property
    def broken(self) -> int:
        """How many devices are not healthy, listed or not."""
        return 0 if self.ended else max(self.total - self.healthy, 0)

    @property
    def unlisted_unhealthy(self) -> int:
        """How many of the devices that the list omits are not healthy."""
        broken = self.broken - len(self.unhealthy())
        return min(max(broken, 0), self.devices_omitted)


def is_real(record: NodeDeviceRecord) -> bool:
    """Whether it is the NodeDevice of its resource; one created by hand under another name is not."""
    return record.name == names.node_device_name(record.node, record.resource)


_device_record = shared(DeviceRecord)
_stored_condition = shared(StoredCondition)
_claimed_share = shared(ClaimedShare)
_same_ids: Callable[..., tuple[str, ...]] = shared(lambda *ids: ids)


def node_device_record(obj: NodeDeviceSchema) -> NodeDeviceRecord:
    meta, status = obj.metadata, obj.status
    held = {device_id for allocation in status.allocations for device_id in allocation.device_ids}
    held |= {parts.parent for allocation in status.allocations for parts in allocation.parts}
    served_by = intern(status.agent.served_by) if status.agent else names.SERVED_BY_NODEDEVICE
    # an ID occurs several times in one object; in others only where a driver names its devices alike on each node
    is_dra = served_by == names.SERVED_BY_DRA
    ids = {d.id: intern(d.id) if is_dra else d.id for d in status.devices}
    return NodeDeviceRecord(
        name=meta.name,
        uid=meta.uid,
        generation=meta.generation,
        resource_version=int(meta.resource_version),
        node=intern(obj.spec.node_name),
        resource=intern(obj.spec.resource_name),
        owner_uid=next((intern(o.uid[:LONGEST_TEXT]) for o in meta.owner_references if o.kind == "Node"), None),
        created=intern(meta.creation_timestamp),
        cordons=len(obj.spec.cordoned_devices),
        has_status=(status.total is not None or status.endpoint is not None) and is_of_agent(obj),
        total=status.total or 0,
        healthy=status.healthy,
        cordoned=status.cordoned,
        allocated=status.allocated,
        releasing=status.releasing,
        reserved=status.reserved,
        available=status.available,
        endpoint=intern(status.endpoint.state) if status.endpoint and status.endpoint.state else None,
        endpoint_since=intern(status.endpoint.since) if status.endpoint else "",
        delivery=intern(status.agent.known_delivery) if status.agent else "",
        devices={ids[d.id]: _device(d) for d in status.devices if d.id in held or d.health != "Healthy"},
        listed=_same_ids(*ids.values()) if is_dra else tuple(ids),
        devices_omitted=status.devices_omitted,
        allocations=tuple(_allocation(a, ids) for a in status.allocations),
        allocations_omitted=status.allocations_omitted,
        waiting=tuple(status.waiting),
        conditions={intern(c.type): _condition(c) for c in status.conditions if c.type in _KNOWN_CONDITIONS},
        edited_by=editors(meta.managed_fields),
        lost_cordons=_lost_cordons(obj),
        weight=_weight(obj),
        parts={ids[d.id]: d.parts for d in status.devices if d.parts is not None},
        largest_available=_largest_available(status),
        served_by=served_by,
        driver=intern(status.driver[:_LONGEST_DRIVER]),
        pool=intern(status.pool[:_LONGEST_POOL]),
        cordoned_ids=_cordoned_ids(obj, ids),
        cordoned_by=_cordoned_by(obj, ids),
    )


def _largest_available(status: NodeDeviceStatus) -> int | None:
    rules = status.parts
    return rules.largest_available if rules is not None and rules.advertise == Advertise.LARGEST else None


def _weight(obj: NodeDeviceSchema) -> int:
    """The approximate memory of the lists in its record."""
    status = obj.status
    held = [device_id for allocation in status.allocations for device_id in allocation.device_ids]
    held += [text for each in status.allocations for parts in each.parts for text in (parts.parent, parts.numbers)]
    texts = [*(device.id for device in status.devices), *held, *(condition.message for condition in status.conditions)]
    texts += [text for each in status.waiting for text in (each.pod_uid, each.name, each.reason, each.message)]
    cordons = *status.remembered_cordons[:_MOST_LOST], *obj.spec.cordoned_devices[:_MOST_LOST]
    texts += [text for cordon in cordons for text in (cordon.id, cordon.by) if text]
    taints = [taint for device in status.devices for taint in device.taints]
    claims = [allocation.claim for allocation in status.allocations if allocation.claim is not None]
    shares = [share for claim in claims for share in claim.devices]
    texts += [text for taint in taints for text in (taint.key, taint.value, taint.effect, taint.since)]
    texts += [claim.name for claim in claims]
    texts += [text for share in shares for text in (share.share_id, share.extended_resource) if text]
    entries = len(status.devices) + len(status.allocations) + len(status.waiting) + len(status.conditions)
    entries += len(taints) + len(shares)
    numa_nodes = sum(len(device.numa_nodes) for device in status.devices)
    return _BYTES_OF_ENTRY * entries + _BYTES_OF_TEXT * (len(texts) + numa_nodes) + sum(map(len, texts))


def _lost_cordons(obj: NodeDeviceSchema) -> frozenset[str]:
    remembered = {c.id for c in obj.status.remembered_cordons}
    return (
        frozenset(sorted(remembered - {c.id for c in obj.spec.cordoned_devices})[:_MOST_LOST])
        if remembered
        else _NOBODY
    )


def _cordoned_ids(obj: NodeDeviceSchema, ids: Mapping[str, str]) -> frozenset[str]:
    cordons = obj.spec.cordoned_devices
    return frozenset(ids.get(c.id, c.id) for c in cordons) if 0 < len(cordons) <= _MOST_LOST else _NOBODY


def _cordoned_by(obj: NodeDeviceSchema, ids: Mapping[str, str]) -> dict[str, str]:
    cordons = obj.spec.cordoned_devices
    return {ids.get(c.id, c.id): intern(c.by) for c in cordons if c.by} if len(cordons) <= _MOST_LOST else {}


def _device(obj: DeviceStatus) -> DeviceRecord:
    values = intern(obj.health), intern(obj.reason), obj.presence == "Missing", tuple(obj.numa_nodes)
    # taints may be long, and few devices have any: one with them is not shared
    return DeviceRecord(*values, tuple(obj.taints)) if obj.taints else _device_record(*values)


def _allocation(obj: AllocationStatus, ids: Mapping[str, str]) -> AllocationRecord:
    return AllocationRecord(
        intern(obj.namespace),
        intern(obj.name),
        intern(obj.pod_uid),
        intern(obj.container),
        tuple(ids.get(device_id, device_id) for device_id in obj.device_ids),
        obj.omitted,
        obj.releasing,
        obj.not_injected,
        tuple(HeldParts(ids.get(held.parent, held.parent), held.parts, held.numbers) for held in obj.parts),
        intern(obj.claim.name) if obj.claim is not None else "",
        tuple(_shares(obj.claim, ids)) if obj.claim is not None else (),
    )


def _shares(claim: ClaimStatus, ids: Mapping[str, str]) -> Iterator[ClaimedShare]:
    for each in claim.devices:
        if each.share_id or each.extended_resource:
            yield _claimed_share(ids.get(each.id, each.id), each.share_id, intern(each.extended_resource))


def _condition(obj: ConditionStatus) -> StoredCondition:
    texts = (obj.status, obj.reason, obj.message, obj.last_transition_time)
    return _stored_condition(*map(intern, texts), obj.observed_generation)
