"""Derives the status of a DRA driver's pool: numbers, devices and conditions. Pure.

The kubelet alone knows whether a held device is healthy; for the others, a driver can only set taints. The scheduler allocates
nothing from a pool that is incomplete or that has a device twice.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from nodedevice_api.names import ALL_DEVICES, ALL_DEVICES_WORD, GROUP, Condition, Reason
from nodedevice_api.nodedevice import AllocationStatus, ClaimStatus

from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import MAX_NAMED_DEVICES, MAX_UNHEALTHY_NAMED, DeviceView, Snapshot
from nodedevice_agent.dra.devices import Device, PoolKey
from nodedevice_agent.dra.pools import MAX_NAMED, Pool
from nodedevice_agent.kube.conditions import ConditionValue, healthy_by_count, place_taken
from nodedevice_agent.kube.status import MAX_LIST_BYTES

# the CRD's bound for one device
MAX_SHOWN: Final = 32
# for the attributes of all devices of a pool; the rest of the room is for the devices themselves
MAX_ATTRIBUTES_BYTES: Final = MAX_LIST_BYTES // 2
# the size of a healthy device without name, attributes and taints; of a taint without key and value
_DEVICE_BYTES: Final = 110
_TAINT_BYTES: Final = 79
_ATTRIBUTE_BYTES: Final = 6
_NO_RULES: Final = "only the driver can take a device out of use, by a taint in its ResourceSlices"
_OFF: Final = (
    "observeDra or observe is false, so devices of DRA drivers are no longer shown on this node; this object is deleted, and its "
    "devices are still allocated as before"
)
_NO_CLAIM: Final = ClaimStatus(name="")


class Offered(Struct, frozen=True):
    """The state of one pool. pool: None if it has no slices. unhealthy: the reason by held device.

    is_late: whether the pool has been incomplete for longer than an update takes. lost_to: see Resource. cordons: IDs in the
    spec. has_rules: whether the API server serves DeviceTaintRules in a stable version. is_off: observation of drivers is off.
    """

    key: PoolKey
    resource_name: str
    pool: Pool | None
    state: EndpointState
    rows: Sequence[AllocationStatus] = ()
    unhealthy: Mapping[str, str] = {}
    is_late: bool = False
    lost_to: str | None = None
    cordons: Collection[str] = ()
    has_rules: bool = False
    is_off: bool = False


def snapshot(found: Offered) -> Snapshot:
    """The numbers and devices of a pool, without allocations: rows belong to claims."""
    pool, held = found.pool, held_devices(found.rows)
    in_use = held_devices(row for row in found.rows if not row.releasing)
    devices: Mapping[str, Device] = pool.devices if pool is not None else {}
    omitted = pool.omitted if pool is not None else 0
    # so many of them may be among the omitted devices
    missing = sorted(held - devices.keys())[omitted:]
    unhealthy = {name: _reported(name, found.unhealthy[name]) for name in sorted(found.unhealthy) if name in devices}
    lost = {name: _missing(name) for name in missing}
    broken = {**unhealthy, **lost}
    return Snapshot(
        resource_name=found.resource_name,
        total=len(devices) + omitted + len(missing),
        healthy=len(devices) + omitted - len(unhealthy),
        cordoned=0,
        allocated=len(in_use),
        releasing=len(held) - len(in_use),
        reserved=0,
        available=_available(found, held, unhealthy),
        state=found.state,
        options=PluginOptions(),
        is_live=found.state is EndpointState.RUNNING,
        id_error="",
        plugin_message="",
        devices=tuple(_shown(devices, broken, held, found.key[0])),
        unhealthy=tuple(broken.values())[:MAX_UNHEALTHY_NAMED],
        held=(),
        pending=(),
    )


def held_devices(rows: Iterable[AllocationStatus]) -> frozenset[str]:
    """Devices held for use. Access for administration does not count: the device stays free."""
    return frozenset(name for row in rows for name in row.device_ids if name not in _administered(row))


def with_times(
    rows: Iterable[AllocationStatus], before: Iterable[AllocationStatus], wall_time: str
) -> list[AllocationStatus]:
    """The rows, each with the time of the observed row; new rows get the current time."""
    since = {_identity(row): row.since for row in before}
    return [replace(row, since=since.get(_identity(row)) or wall_time) for row in rows]


def _identity(row: AllocationStatus) -> tuple[str, str, str]:
    return row.pod_uid, row.container, (row.claim or _NO_CLAIM).name


def _administered(row: AllocationStatus) -> set[str]:
    shares = (row.claim or _NO_CLAIM).devices
    return {share.id for share in shares if share.admin_access}.difference(s.id for s in shares if not s.admin_access)


def _available(found: Offered, held: Collection[str], unhealthy: Collection[str]) -> int:
    """The number of devices available to a pod without tolerations."""
    pool = found.pool
    # the scheduler allocates nothing from a late pool; that a generation comes in parts for a moment is not shown
    if pool is None or not pool.is_whole or not pool.is_valid or (not pool.is_complete and found.is_late):
        return 0
    used: defaultdict[tuple[str, str], Decimal] = defaultdict(Decimal)
    for name in held:
        if name in pool.devices:
            for set_name, counter, amount in pool.devices[name].consumes:
                used[set_name, counter] += amount
    return sum(
        name not in held
        and name not in unhealthy
        and not any(taint.is_exclusive for taint in device.taints)
        and all(used[s, c] + amount <= pool.shared[s, c] for s, c, amount in device.consumes)
        for name, device in pool.devices.items()
    )


# -- devices ------------------------------------------------------------------------------------------------------------------


def _shown(
    devices: Mapping[str, Device], broken: Mapping[str, DeviceView], held: Collection[str], driver: str
) -> list[DeviceView]:
    """The devices that fit a status, sorted. Unhealthy devices go first, then held ones, then tainted ones."""
    tainted = (name for name, device in devices.items() if device.taints)
    in_turn = dict.fromkeys((*sorted(broken), *sorted(devices.keys() & held), *tainted, *devices))
    named: list[str] = []
    room = MAX_LIST_BYTES
    for name in in_turn:
        room -= _room(name, devices.get(name))
        if len(named) == MAX_NAMED_DEVICES or room < MAX_ATTRIBUTES_BYTES:
            break
        named.append(name)
    return [*_with_attributes(sorted(named), devices, broken, driver)]


def _with_attributes(
    named: Iterable[str], devices: Mapping[str, Device], broken: Mapping[str, DeviceView], driver: str
) -> Iterator[DeviceView]:
    room = MAX_ATTRIBUTES_BYTES
    for name in named:
        device, view = devices.get(name), broken.get(name, DeviceView(name, True))
        if device is None:
            yield view
            continue
        attributes = attributes_of(device, driver)
        room -= sum(_octets(key) + _octets(value) + _ATTRIBUTE_BYTES for key, value in attributes)
        shown = attributes if room >= 0 else ()
        yield replace(view, numa_nodes=device.numa_nodes, attributes=shown, taints=device.taints)


def _room(name: str, device: Device | None) -> int:
    """Its size in a status, without attributes and the health message."""
    taints = device.taints if device is not None else ()
    of_taints = sum(_TAINT_BYTES + _octets(taint.key) + _octets(taint.value) for taint in taints)
    return _DEVICE_BYTES + _octets(name) + of_taints


def _octets(text: str) -> int:
    """Its largest size in ASCII JSON, apart from escapes of quotes, which are rare."""
    return len(text) if text.isascii() else 12 * len(text)


def attributes_of(device: Device, driver: str) -> tuple[tuple[str, str], ...]:
    """Sorted attributes, by names without a domain. Names of other domains lose it only if they stay unique."""
    known = device.attributes
    shortened = {name: name.rpartition("/")[2] for name in known}
    count = Counter(shortened.values())
    named: dict[str, str] = {}
    for name, plain in shortened.items():
        is_driver = name == f"{driver}/{plain}" and plain not in known
        named[plain if is_driver or count[plain] == 1 else name] = known[name]
    return tuple(sorted(named.items())[:MAX_SHOWN])


def _reported(name: str, message: str) -> DeviceView:
    return DeviceView(
        name, False, Reason.REPORTED_UNHEALTHY, message or "its driver reports it unhealthy, and does not say why"
    )


def _missing(name: str) -> DeviceView:
    message = "in use by a container, but no ResourceSlice of its driver lists it any more"
    return DeviceView(name, False, Reason.NOT_LISTED, message, present=False)


# -- conditions ----------------------------------------------------------------------------------------------------------------


def conditions(found: Offered, now: Snapshot) -> dict[str, ConditionValue]:
    injected = f"the driver {found.key[0]} gives the devices to containers, by the kubelet"
    return {
        Condition.REGISTERED: _registered(found),
        Condition.HEALTHY: _healthy(found, now),
        Condition.INJECTABLE: ("True", Reason.SERVED_BY_DRA, injected),
    }


def _registered(found: Offered) -> ConditionValue:
    driver, name = found.key
    if found.is_off:
        return "False", Reason.NOT_CONFIGURED, _OFF
    if found.lost_to is not None:
        return "False", Reason.PLACE_TAKEN, place_taken(found.lost_to)
    if found.pool is None:
        gone = f"the driver {driver} has no ResourceSlice of the pool {name} on this node"
        return "False", Reason.ENDPOINT_GONE, f"{gone}: it does not run here, or has no such pool any more"
    wrong: list[tuple[str, str]] = []
    if found.cordons:
        wrong.append((Reason.CORDON_NOT_POSSIBLE, _no_cordon(found, found.pool)))
    if found.pool.twice:
        twice = ", ".join(found.pool.twice)
        message = "the scheduler allocates none of these devices, because one is in two ResourceSlices of its pool"
        wrong.append((Reason.DEVICES_REFUSED, f"{message}: {twice}; its driver has to publish each once"))
    if found.pool.uncounted:
        message = "the scheduler allocates none of these devices, because shared counters are missing in their pool or occur twice"
        named = ", ".join(found.pool.uncounted)
        wrong.append((Reason.DEVICES_REFUSED, f"{message}: {named}; its driver has to publish each set of them once"))
    if not found.pool.is_complete and found.is_late:
        wrong.append((Reason.POOL_INCOMPLETE, _incomplete(found.pool)))
    if wrong:
        return "True", wrong[0][0], "; ".join(message for _, message in wrong)
    offers = f"the driver {driver} offers these devices, and the scheduler allocates them by claims; they are only shown here"
    return "True", Reason.SERVED_BY_DRA, offers


def _incomplete(pool: Pool) -> str:
    """Why the pool is incomplete. The scheduler may know slices that the agent lacks or cannot read."""
    if not pool.missing:
        return (
            f"the pool {pool.name} has {pool.count + pool.surplus} ResourceSlices in its newest generation, but they "
            f"state {pool.count}: the scheduler allocates none of these devices until the driver has deleted the others"
        )
    shown = (
        "the devices of the last complete generation are shown"
        if pool.is_whole
        else "only the devices of the others are shown"
    )
    why = (
        "the scheduler allocates none of these devices until the driver has published all slices; or these belong to several "
        "nodes, and are in no NodeDevice"
    )
    if pool.unread:
        why = f"the devices of {', '.join(pool.unread)} {pool.problem}; the scheduler may still allocate them"
    missing = (
        f"{pool.missing} of {pool.count} ResourceSlices of the pool {pool.name} are missing in its newest generation"
    )
    return f"{missing}, and {shown}: {why}"


def _no_cordon(found: Offered, pool: Pool) -> str:
    begin = (
        f"spec.cordonedDevices has no effect: the driver {found.key[0]} offers these devices, and the scheduler allocates them; "
        "remove the cordons"
    )
    is_whole = bool({ALL_DEVICES, ALL_DEVICES_WORD} & {*found.cordons})
    known = [name for name in sorted(found.cordons) if name in pool.devices]
    if not found.has_rules:
        return f"{begin}; {_NO_RULES}"
    if not is_whole and not known:
        unknown = ", ".join(sorted(found.cordons)[:MAX_NAMED])
        return f"{begin}; the driver lists no device {unknown}"
    rule = taint_rule(found.key, "" if is_whole else known[0])
    others = "" if is_whole or len(known) == 1 else f", and such a rule for each of {', '.join(known[1:][:MAX_NAMED])}"
    others += ", …" if not is_whole and len(known) > MAX_NAMED + 1 else ""
    return f"{begin} and create this DeviceTaintRule{others} (with NoExecute, pods that have the device are also evicted): {rule}"


def taint_rule(key: PoolKey, device: str) -> str:
    """The DeviceTaintRule with the effect of a cordon, as JSON for `kubectl create -f -`. device: "" for the whole pool."""
    selector = {"driver": key[0], "pool": key[1]} | ({"device": device} if device else {})
    taint = {"key": f"{GROUP}/cordoned", "effect": "NoSchedule"}
    rule = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"generateName": "cordon-"},
        "spec": {"deviceSelector": selector, "taint": taint},
    }
    return json.dumps(rule, separators=(",", ":"))


def _healthy(found: Offered, now: Snapshot) -> ConditionValue:
    if found.pool is None and not now.total:
        return "False", Reason.NO_DEVICES, "no ResourceSlice offers devices of this pool"
    if found.pool is None:
        message = f"no ResourceSlice offers devices of this pool any more: {now.total} in use by pods"
        return "False", Reason.NONE_HEALTHY, message
    if not now.total:
        return "False", Reason.NO_DEVICES, "the driver's ResourceSlices list no devices"
    return healthy_by_count(now)
