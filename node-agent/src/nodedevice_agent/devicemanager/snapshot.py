"""One resource at one moment: its numbers, the devices shown one by one, its allocations and its pending allocations.

Reading a snapshot changes nothing. A device counts as healthy here only if a pod could use it. A device of a disconnected plugin,
or one that is held but no longer listed, is unhealthy for any earlier report.
"""

from collections.abc import Callable, Collection, Sequence
from itertools import filterfalse, islice

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD, Reason
from nodedevice_api.nodedevice import DeviceTaint, PartCounts
from nodedevice_api.parts import PartRules

from nodedevice_agent.devicemanager.allocation.pod_allocation import PendingAllocation
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.omitted_allocations import lacking, room
from nodedevice_agent.devicemanager.parents import ParentView, parent_views
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.cordons import NO_CORDONS, Cordon, Cordons
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.use import OtherUse

# With more devices than this, only noteworthy ones (not healthy, cordoned, held) are shown one by one, so the cost of a snapshot
# does not grow with the length of the list. While no plugin is connected, the endpoint's state marks all
# devices as unhealthy: then only devices that are held or cordoned one by one are shown.
MAX_FULL_LIST = 256
# The CRD's bound.
MAX_NAMED_DEVICES = 4096
# shown in messages
MAX_UNHEALTHY_NAMED = 3


class DeviceView(Struct, frozen=True, gc=False):
    """reason, message: empty for a healthy device, and while no plugin is connected. present: its plugin lists it. cordoned_by: if
    noted. parts: of a physical device that is shown in place of its parts, and is healthy while one of them is. taints: of its DRA
    driver.
    """

    id: str
    healthy: bool
    reason: str = ""
    message: str = ""
    present: bool = True
    cordoned: bool = False
    numa_nodes: tuple[int, ...] = ()
    attributes: tuple[tuple[str, str], ...] = ()
    parts: PartCounts | None = None
    cordoned_by: str = ""
    taints: tuple[DeviceTaint, ...] = ()


class AllocationView(Struct, frozen=True):
    """pod: None if unknown. not_injected: the container runs without these devices."""

    allocation: Allocation
    pod: Pod | None
    releasing: bool
    not_injected: bool = False


class PendingView(Struct, frozen=True):
    """pod: None if unknown. not_injected: the container runs nevertheless."""

    pending: PendingAllocation
    pod: Pod | None
    not_injected: bool = False


# pod uid, container, resource name
DevicesNotInjected = Callable[[str, str, str], bool]


class Snapshot(Struct, frozen=True):
    """reserved: the number of releasing devices that the scheduler has already assigned to pending pods on this node.

    id_error, plugin_message, part_rules: see ListedDevices. devices: sorted by ID, at most MAX_NAMED_DEVICES; if the devices are
    parts, their parents. unhealthy: the first few devices that are unhealthy, or have such parts, even if `devices` is cut before
    them; none while no plugin is connected. remembered_cordons: by device ID, sorted. unknown_cordons: the first IDs that match no
    device, with who cordoned them if noted. possible_holders: the number of pods that may hold devices unknown here. sockets: see
    Connections. is_not_configured, lost_to, is_silent: see Presence.
    """

    resource_name: str
    total: int
    healthy: int
    cordoned: int
    allocated: int
    releasing: int
    reserved: int
    available: int
    state: EndpointState
    options: PluginOptions
    is_live: bool
    id_error: str
    plugin_message: str
    devices: tuple[DeviceView, ...]
    unhealthy: tuple[DeviceView, ...]
    held: tuple[AllocationView, ...]
    pending: tuple[PendingView, ...]
    remembered_cordons: tuple[tuple[str, Cordon], ...] = ()
    unknown_cordons: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    possible_holders: int = 0
    part_rules: PartRules | None = None
    is_not_configured: bool = False
    lost_to: str | None = None
    is_silent: bool = False


def is_settling(manager: DeviceManager, resource_name: str) -> bool:
    """After a restart, while the plugin has not listed its devices: the last published status stays."""
    return manager.is_recovering or manager.resources[resource_name].presence.settle_until is not None


def snapshot(
    manager: DeviceManager, resource_name: str, not_injected: DevicesNotInjected = lambda *_: False
) -> Snapshot:
    """not_injected: whether a container runs without this resource. Raises KeyError for an unknown resource."""
    resource = manager.resources[resource_name]
    holders, ended = resource.use.holders, manager.book.releasing
    # devices reserved by an allocation in progress still count as available
    in_flight = sum(i not in holders and availability.is_usable(resource, i) for i in resource.use.reserved)
    # healthy devices that are known only by their number
    counted = resource.listed.counted if resource.is_live else 0
    # an unconfirmed device counts as available: its identity is confirmed soon, or it goes
    unconfirmed = len(availability.unconfirmed(resource))
    available = availability.free_count(resource) + in_flight + counted + unconfirmed
    if resource.use.possible_holders:
        available = min(available, room(resource, manager.pods.values()))
    releasing = sum(uid in ended for uid in holders.values()) if ended else 0
    missing = [*filterfalse(resource.devices.__contains__, holders)]
    total = len(resource.devices) + resource.listed.omitted + resource.listed.counted + len(missing)
    are_parts = resource.listed.part_rules is not None and not resource.use.excess
    shown = _shown_by_parent if are_parts else _shown_one_by_one
    devices, unhealthy_devices = shown(resource, missing)
    if resource.use.held_back:
        devices = [_with_holder(manager, resource, view) for view in devices]
        unhealthy_devices = [_with_holder(manager, resource, view) for view in unhealthy_devices]
    cordons = manager.cordons.get(resource_name, NO_CORDONS)
    if resource.use.cordoned_ids:
        devices = [_with_author(cordons, resource, view) for view in devices]
    cordoned = sum(i in resource.devices for i in resource.use.cordoned_ids)
    cordoned += sum(map(resource.use.is_cordoned, missing))
    return Snapshot(
        resource_name=resource_name,
        total=total,
        healthy=availability.healthy_count(resource) + counted,
        cordoned=total if ALL_DEVICES in resource.use.cordoned_ids else cordoned,
        allocated=len(holders) - releasing,
        releasing=releasing,
        reserved=_reserved(manager, resource, available) if releasing else 0,
        available=available,
        state=resource.presence.state,
        options=resource.newest.options,
        is_live=resource.is_live,
        id_error=resource.use.excess or resource.listed.id_error,
        plugin_message=resource.listed.plugin_message,
        devices=tuple(devices),
        unhealthy=tuple(unhealthy_devices),
        held=tuple(
            AllocationView(a, manager.pod(a.pod_uid), a.pod_uid in ended, not_injected(*a.key))
            for a in (manager.book.of_resource(resource_name) if holders else ())
        ),
        pending=tuple(
            PendingView(w, manager.pod(w.pod_uid), not_injected(w.pod_uid, w.container, resource_name))
            for w in manager.pending(resource_name)
        ),
        remembered_cordons=tuple(sorted(cordons.remembered.items())),
        unknown_cordons=_unknown(cordons, resource),
        sockets=resource.connections.sockets(),
        possible_holders=len(resource.use.possible_holders),
        part_rules=resource.listed.part_rules,
        is_not_configured=resource.presence.is_not_configured,
        lost_to=resource.presence.lost_to,
        is_silent=resource.presence.is_silent,
    )


def _with_author(cordons: Cordons, resource: Resource, view: DeviceView) -> DeviceView:
    return replace(view, cordoned_by=cordons.by(view.id, resource.use.parent_of(view.id))) if view.cordoned else view


def _unknown(cordons: Cordons, resource: Resource) -> tuple[str, ...]:
    if not resource.use.cordons:
        return ()
    ids = sorted(resource.use.unknown_cordons() - {ALL_DEVICES, ALL_DEVICES_WORD})[:MAX_UNHEALTHY_NAMED]
    return tuple(f"{i} (by {by})" if (by := cordons.by(i)) else i for i in ids)


def _reserved(manager: DeviceManager, resource: Resource, available: int) -> int:
    """The number of usable devices in release that pending pods on this node need. The scheduler counts these pods, but no longer
    the ended ones. If the Node showed fewer devices, a kubelet that is about to admit the pods would fail them permanently
    (OutOf…).
    """
    releasing = sum(
        uid in manager.book.releasing and availability.is_usable(resource, i) for i, uid in resource.use.holders.items()
    )
    return min(releasing, max(lacking(resource, manager.pods.values()) - available, 0))


def _shown_one_by_one(resource: Resource, missing: list[str]) -> tuple[list[DeviceView], list[DeviceView]]:
    """The devices that are shown, and the first few unhealthy ones."""
    unhealthy = _unhealthy(resource, missing)
    named = _named(resource, missing, unhealthy)
    return [_view(resource, i) for i in named], [_view(resource, i) for i in unhealthy[:MAX_UNHEALTHY_NAMED]]


def _shown_by_parent(resource: Resource, missing: list[str]) -> tuple[list[DeviceView], list[DeviceView]]:
    """The same for parents; while no plugin is connected, only parents that are cordoned or have a held part."""
    found = parent_views(resource, missing)
    if not resource.is_live:
        found = [p for p in found if p.parts.allocated or (p.cordoned and ALL_DEVICES not in resource.use.cordoned_ids)]
    views = [_parent_device(resource, parent) for parent in found]
    unhealthy = [v for v in views if v.parts is not None and v.parts.healthy < v.parts.total]
    return views[:MAX_NAMED_DEVICES], unhealthy[:MAX_UNHEALTHY_NAMED] if resource.is_live else []


def _parent_device(resource: Resource, parent: ParentView) -> DeviceView:
    """A parent with its plugin's report; without one, with the state of its parts."""
    part = _view(resource, parent.example)
    reported = resource.listed.parents.get(parent.id)
    view = replace(
        part,
        id=parent.id,
        healthy=parent.parts.healthy > 0,
        present=parent.present,
        cordoned=parent.cordoned,
        attributes=reported.attributes if reported is not None else part.attributes,
        parts=parent.parts,
    )
    if reported is not None and reported.reason and part.reason == Reason.REPORTED_UNHEALTHY:
        view = replace(view, reason=reported.reason, message=reported.message)
    return view


def _unhealthy(resource: Resource, missing: list[str]) -> list[str]:
    """IDs of the first devices that are not healthy, while a plugin is connected."""
    listed = resource.listed
    if not resource.is_live:
        return []
    if resource.flap_damping.is_of_all or resource.use.excess:
        return _first((*listed.ids[:MAX_NAMED_DEVICES], *missing))
    damped = (i for i in resource.flap_damping.damped if i in listed.devices)
    return _first({*listed.unhealthy_ids[:MAX_NAMED_DEVICES], *damped, *missing, *resource.use.held_back})


def _named(resource: Resource, missing: list[str], unhealthy: list[str]) -> list[str]:
    listed = resource.listed
    is_short = len(listed.ids) + len(missing) <= MAX_FULL_LIST
    if resource.is_live and (is_short or ALL_DEVICES in resource.use.cordoned_ids):
        return _first((*listed.ids[:MAX_NAMED_DEVICES], *missing))
    found = {*unhealthy, *(i for i in resource.use.cordoned_ids if i in listed.devices)}
    held = resource.use.holders.keys() - found
    if not found or len(found) + len(held) <= MAX_NAMED_DEVICES:
        return _first(held | found, listed.ids)
    # Thousands of held devices must not hide a broken one, nor thousands of broken ones a held one.
    fewer, more = sorted((found, held), key=len)
    first = _first(fewer, listed.ids)
    return sorted([*first, *_first(more, listed.ids)[: MAX_NAMED_DEVICES - len(first)]])


def _first(device_ids: Collection[str], in_order: Sequence[str] = ()) -> list[str]:
    """in_order: sorted, and most of them; avoids sorting very many again for the first few."""
    if in_order and len(device_ids) > MAX_NAMED_DEVICES:
        first = islice(filter(device_ids.__contains__, in_order), MAX_NAMED_DEVICES)
        device_ids = [*first, *frozenset(device_ids).difference(in_order)]
    return sorted(device_ids)[:MAX_NAMED_DEVICES]


def _view(resource: Resource, device_id: str) -> DeviceView:
    device = resource.devices.get(device_id)
    cordoned = bool(resource.use.cordoned_ids) and resource.use.is_cordoned(device_id)
    if device is None:
        return DeviceView(device_id, False, *_why_missing(resource), present=False, cordoned=cordoned)
    is_healthy = availability.is_healthy(resource, device_id)
    reason, message = ("", "") if is_healthy else _why_unhealthy(resource, device)
    return DeviceView(device_id, is_healthy, reason, message, True, cordoned, device.numa_nodes, device.attributes)


def _why_missing(resource: Resource) -> tuple[str, str]:
    if resource.presence.is_not_configured:
        return Reason.NOT_CONFIGURED, "a container holds it, and its resource is not configured any more"
    if resource.awaits_devices:
        return (
            Reason.NOT_LISTED_YET,
            "in use by a container; the device plugin has listed no device since it registered",
        )
    return Reason.NOT_LISTED, "in use by a container, but the device plugin no longer lists it"


def _why_unhealthy(resource: Resource, device: Device) -> tuple[str, str]:
    """Why a listed device is unhealthy: reason and message; empty if the endpoint's state is the reason."""
    if not resource.is_live:
        return "", ""
    if resource.flap_damping.has(device.id):
        return Reason.FLAPPING, resource.flap_damping.message(device.id)
    if device.id in resource.use.held_back:
        return Reason.IN_OTHER_USE, _in_other_use(device, resource.use.held_back[device.id])
    if device.healthy and resource.use.excess:
        return Reason.IN_OTHER_USE, "whether it is used in another way is not known: its plugin lists too many devices"
    message = device.message or "the device plugin reports it unhealthy"
    return device.reason or Reason.REPORTED_UNHEALTHY, message


def _in_other_use(device: Device, other: OtherUse) -> str:
    if not other.device_id:
        here = "it can be allocated here when no pod uses it so, and no plugin lists it so"
        return f"{device.parent} is used as {other.use}: {here}"
    remedy = "remove it from the configuration of one of the two resources"
    return f"it is the same device as {other.device_id} of {other.resource_name}, and is {other.use} there: {remedy}"


def _with_holder(manager: DeviceManager, resource: Resource, view: DeviceView) -> DeviceView:
    """Add the pod that has the device under another name, if any."""
    other = resource.use.held_back.get(view.id)
    if other is None or other.resource_name not in manager.resources or view.reason != Reason.IN_OTHER_USE:
        return view
    pod_uid = manager.resources[other.resource_name].use.holders.get(other.device_id)
    if pod_uid is None:
        return view
    pod = manager.pod(pod_uid)
    holder = f"pod {pod.namespace}/{pod.name}" if pod is not None else f"a pod with UID {pod_uid}"
    return replace(view, message=f"{view.message}; {holder} has it now")
