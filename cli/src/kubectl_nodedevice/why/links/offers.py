"""What DRA drivers offer on a node, and whether it can suffice. Pure.

Selectors are CEL, which only the scheduler evaluates: what is counted here is the most that could match. So too few is certain, and
enough is not. Devices that the scheduler divides are not counted at all.
"""

from collections.abc import Sequence
from dataclasses import replace

from kubectl_nodedevice.text import some
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import CLAIMS, SLICES, Facts
from kubectl_nodedevice.why.kinds import IMPLICIT_CLASS, DeviceClass, ResourceClaim, Slice, SliceDevice
from kubectl_nodedevice.why.links import devices
from kubectl_nodedevice.why.links.devices import HELD, TAINTED, Unit, Wanted


def classes_for(facts: Facts, resource: str) -> tuple[DeviceClass, ...]:
    """The classes by which that extended resource is given out."""
    return tuple(each for each in facts.classes if resource in (each.extended_resource, IMPLICIT_CLASS + each.name))


def is_offered(facts: Facts, found: DeviceClass) -> bool:
    """Whether a driver has published any device that could be of the class."""
    return any(each.devices for each in facts.slices if found.driver in ("", each.driver))


def devices_on(facts: Facts, found: DeviceClass, node: str) -> tuple[tuple[Slice, SliceDevice], ...]:
    """Those that could be of the class, of the node alone and of the newest generation of their pools."""
    newest: dict[tuple[str, str], int] = {}
    for each in facts.slices:
        pool = (each.driver, each.pool)
        newest[pool] = max(newest.get(pool, 0), each.generation)
    return tuple(
        (each, device)
        for each in facts.slices
        if each.node == node and found.driver in ("", each.driver)
        if each.generation == newest[each.driver, each.pool]
        for device in each.devices
    )


def obstacles(
    facts: Facts, node: str, found: DeviceClass, wanted: Wanted, *, is_tolerant: bool = False
) -> tuple[Obstacle, ...]:
    """Why so many devices of the class cannot be had on the node; () where they perhaps can.

    is_tolerant: the claim tolerates taints of devices; which, is for the scheduler to compare.
    """
    offered = devices_on(facts, found, node)
    if not facts.has_read(SLICES) or any(device.is_shared for _, device in offered) or _is_beyond_nodes(facts, found):
        return ()
    holders = _holders(facts)
    units = [
        _unit(device, holders.get((each.driver, each.pool, device.name), ""), is_tolerant) for each, device in offered
    ]
    short = devices.obstacles(node, wanted, units)
    # NodeDevices of a driver have its name, not that of the resource
    return tuple(replace(each, fields={**each.fields, "resource_options": ""}) for each in short)


def _is_beyond_nodes(facts: Facts, found: DeviceClass) -> bool:
    """Whether a driver offers devices that are not of one node: whichever nodes can use them is for the scheduler to say."""
    return any(not each.node and each.devices for each in facts.slices if found.driver in ("", each.driver))


def _holders(facts: Facts) -> dict[tuple[str, str, str], str]:
    """Who has which device: by the claims, or where not all may be read by what agents show."""
    if facts.has_read(CLAIMS):
        return {device: _holder(claim) for claim in facts.claims for device in claim.devices}
    return {
        (found.driver, found.pool, device): f"by {each.namespace}/{each.pod}"
        for found in facts.node_devices
        for each in found.allocations
        for device in each.device_ids
    }


def _holder(claim: ResourceClaim) -> str:
    kind, _, name = claim.meta.owner.partition("/")
    return (
        f"by {claim.meta.namespace}/{name}" if kind == "Pod" else f"by claim {claim.meta.namespace}/{claim.meta.name}"
    )


def _unit(device: SliceDevice, holder: str, is_tolerant: bool) -> Unit:
    taints = [] if is_tolerant else [each for each in device.taints if each.effect in ("NoSchedule", "NoExecute")]
    taken = {HELD: int(bool(holder)), TAINTED: int(bool(taints))}
    why = {HELD: holder, TAINTED: f"({some([f'{each.key}:{each.effect}' for each in taints])})"}
    return Unit(device.name, 1, int(not any(taken.values())), taken, why)


def wanted_of(claim: ResourceClaim, device_class: str) -> int:
    """How many devices of the class the claim asks for, of the requests that leave no choice."""
    fixed: Sequence[int] = [
        each.count for each in claim.requests if each.classes == (device_class,) and not each.is_admin
    ]
    return sum(fixed)
