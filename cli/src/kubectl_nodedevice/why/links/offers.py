"""Counts devices that DRA drivers offer on a node, and decides whether they can suffice. Pure.

Only the scheduler evaluates selectors, which are CEL. The count here is an upper bound: "too few" is certain, "enough" is not.
Devices that the scheduler divides are not counted.
"""

from collections.abc import Sequence
from dataclasses import replace

from kubectl_nodedevice.quantities import IMPLICIT_CLASS
from kubectl_nodedevice.text import some
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import SLICES, Facts
from kubectl_nodedevice.why.kinds import DeviceClass, ResourceClaim, Slice, SliceDevice
from kubectl_nodedevice.why.links import devices
from kubectl_nodedevice.why.links.devices import HELD, PREDECESSOR, REFUSED, TAINTED, Unit, Wanted


def classes_for(facts: Facts, resource: str) -> tuple[DeviceClass, ...]:
    return tuple(each for each in facts.classes if resource in (each.extended_resource, IMPLICIT_CLASS + each.name))


def is_offered(facts: Facts, found: DeviceClass) -> bool:
    """Whether a driver has published a device that could belong to the class."""
    return _is_among(found, facts.offering_drivers)


def _is_among(found: DeviceClass, drivers: frozenset[str]) -> bool:
    return found.driver in drivers if found.driver else bool(drivers)


def devices_on(facts: Facts, found: DeviceClass, node: str) -> tuple[tuple[Slice, SliceDevice], ...]:
    return tuple(each for each in facts.offered_on(node) if found.driver in ("", each[0].driver))


def may_have(facts: Facts, found: DeviceClass, node: str) -> bool:
    """Whether the node has such a device, or may reach one of several nodes."""
    return bool(devices_on(facts, found, node)) or _is_among(found, facts.drivers_beyond_nodes)


def obstacles(
    facts: Facts, node: str, found: DeviceClass, wanted: Wanted, *, is_tolerant: bool = False
) -> tuple[Obstacle, ...]:
    """Return why too few devices of the class are available on the node.

    is_tolerant: the claim tolerates taints of devices; the scheduler compares them.
    """
    offered = devices_on(facts, found, node)
    if not facts.has_read(SLICES) or _is_among(found, facts.drivers_beyond_nodes):
        return ()
    if offered and all(each.whole_pool in facts.refused_pools for each, _ in offered):
        # The pod gets none of them at all.
        wanted = Wanted(wanted.resource)
    elif any(device.is_shared for _, device in offered):
        return ()
    units = [_unit(facts, each, device, is_tolerant=is_tolerant) for each, device in offered]
    short = devices.obstacles(node, wanted, units)
    # A driver's NodeDevices have its name, not that of the resource.
    return tuple(replace(each, fields={**each.fields, "resource_options": ""}) for each in short)


def _unit(facts: Facts, found: Slice, device: SliceDevice, *, is_tolerant: bool) -> Unit:
    holder = facts.device_holders.get((*found.whole_pool, device.name), "")
    refused = facts.refused_pools.get(found.whole_pool, "")
    taints = [] if is_tolerant else [each for each in device.taints if each.is_exclusive]
    held = PREDECESSOR if holder.removeprefix("by ") in facts.predecessors else HELD
    taken = {held: int(bool(holder)), TAINTED: int(bool(taints)), REFUSED: int(bool(refused))}
    why = {held: holder, REFUSED: refused, TAINTED: f"({some([f'{each.key}:{each.effect}' for each in taints])})"}
    return Unit(device.name, 1, int(not any(taken.values())), taken, why)


def wanted_of(claim: ResourceClaim, device_class: str) -> int:
    """Count devices of the class in requests that allow no other class."""
    fixed: Sequence[int] = [
        each.count for each in claim.requests if each.classes == (device_class,) and not each.is_admin
    ]
    return sum(fixed)
