"""`why device`: what keeps one device from being given out. Pure."""

from collections.abc import Iterator

from kubectl_nodedevice.cluster import Meta, Node, NodeDevice
from kubectl_nodedevice.devices import holders_of
from kubectl_nodedevice.text import age, some
from kubectl_nodedevice.why.explanation import Explanation, findings_of
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.links import devices, supply
from kubectl_nodedevice.why.links.devices import Unit, Wanted
from kubectl_nodedevice.why.reasons.row import line_of
from kubectl_nodedevice.why.reasons.table import BY_CODE


def resources_of(facts: Facts, device: str) -> list[NodeDevice]:
    """The NodeDevices that list it, or that leave out devices that are free, of which it may be one."""
    listing = [each for each in facts.node_devices if any(device == one.id for one in each.devices)]
    return listing or [each for each in facts.node_devices if each.devices_omitted]


def explain(facts: Facts, found: NodeDevice, device: str) -> Explanation:
    """Why the device of that NodeDevice is not free."""
    node = facts.node(found.node) or Node(Meta(found.node))
    units = [unit for unit in devices.units_of(found, facts.now) if unit.id == device]
    wanted = Wanted(found.resource)
    own = devices.obstacles(found.node, wanted, units, supply.as_of(facts, found)) if units else ()
    # of the resource all that is not about devices: one that is free may not be given out all the same
    of_resource = [each for each in supply.obstacles(facts, node, wanted) if each.code not in _OF_DEVICES]
    findings = findings_of([*of_resource, *own], 1)
    return Explanation(
        f"device {device} of {found.resource} on node {found.node}",
        _state(found, units, device),
        is_stopped=bool(findings),
        findings=findings,
        notes=tuple(_notes(facts, found, device)),
        unread=facts.unread,
        asked=line_of(BY_CODE["DevicesBroken"], {"node": found.node, "device": device, "resource": found.resource}),
    )


_OF_DEVICES = frozenset({*devices.TAKERS, "TooFewTogether", "TooFewOnOneDevice", "NodeShowsFewer"})


def _state(found: NodeDevice, units: list[Unit], device: str) -> str:
    if not units:
        return "is not listed, as healthy and free devices of long lists are not."
    unit = units[0]
    if unit.total > 1:
        return f"has {unit.free} of {unit.total} parts free."
    held = [each.pod for each in holders_of(found).get(device, [])]
    if held:
        return f"is held by {some(sorted(set(held)))}."
    return "is free." if unit.free else "is held by nobody, and not given out."


def _notes(facts: Facts, found: NodeDevice, device: str) -> Iterator[str]:
    for each in found.devices:
        if each.id != device:
            continue
        if each.message:
            yield each.message
        since = age(each.since, facts.now)
        yield f"{each.health or 'Its health is not known'}{f' for {since}' if since else ''}."
        if each.attributes:
            yield ", ".join(f"{key} {value}" for key, value in sorted(each.attributes.items()))
    twice = found.condition("OfferedTwice")
    if twice.status == "True":
        yield twice.message
