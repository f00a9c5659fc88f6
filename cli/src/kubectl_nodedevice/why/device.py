"""`why device`: explains why one device is not free. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from kubectl_nodedevice.cluster import Device, Meta, Node, NodeDevice
from kubectl_nodedevice.device_state import holders_of
from kubectl_nodedevice.text import age, some
from kubectl_nodedevice.why.explanation import Explanation, Obstacle, findings_of
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.links import devices, supply
from kubectl_nodedevice.why.links.devices import Unit, Wanted


def resources_of(facts: Facts, device: str) -> list[NodeDevice]:
    """Return the NodeDevices that list the device; if none does, those with a cut list."""
    listing = [each for each in facts.node_devices if any(device == one.id for one in each.devices)]
    return listing or [each for each in facts.node_devices if each.devices_omitted]


def explain(facts: Facts, found: NodeDevice, device: str) -> Explanation:
    node = facts.node(found.node) or Node(Meta(found.node))
    units = [unit for unit in devices.units_of(found, facts.now) if unit.id == device]
    wanted = Wanted(found.resource)
    own = list(devices.obstacles(found.node, wanted, units, supply.as_of(facts, found))) if units else []
    # obstacles of the resource prevent the allocation of a free device
    of_resource = [each for each in supply.obstacles(facts, node, wanted) if each.code not in _OF_DEVICES]
    own = [_with_remedy(found, device, each) for each in own]
    findings = findings_of([*of_resource, *own], 1, {"system": facts.release.namespace}, "device")
    return Explanation(
        f"device {device} of {found.resource} on node {found.node}",
        _state(found, units, device),
        is_stopped=bool(findings),
        findings=findings,
        notes=tuple(_notes(facts, found, device)),
        unread=facts.unread,
    )


_OF_DEVICES = frozenset(
    {*devices.TAKERS, "TooFewTogether", "TooFewOnOneDevice", "NodeShowsFewer", "NoDevices", "DevicesRefused"}
)
_READ_LOG = "Read the log of its device plugin, and repair or replace the device"
# by the reason that the agent gives
_REMEDIES = {
    "NotListed": "Connect it again, or have its plugin list it",
    "NotListedYet": "Wait until its plugin has listed its devices",
    "NotAllocatable": "The kubelet does not offer it, and does not say why: read the log of its plugin",
    "Flapping": "It goes and comes back: check its cable, its power and its driver",
    "DriverReleased": "Bind it to its driver again",
}


def _with_remedy(found: NodeDevice, device: str, obstacle: Obstacle) -> Obstacle:
    unit = next((each for each in found.devices if each.id == device), Device(device))
    reason = "NotListed" if unit.presence == "Missing" and not unit.reason else unit.reason
    remedy = _REMEDIES.get(reason, _READ_LOG)
    if reason.startswith("Xid"):
        remedy = "Reset the GPU or reboot its node once no pod uses it, and replace it if that comes again"
    return replace(obstacle, fields={**obstacle.fields, "device_remedy": remedy})


def _state(found: NodeDevice, units: list[Unit], device: str) -> str:
    if not units:
        return "is not listed: long lists omit healthy, free devices."
    unit = units[0]
    if unit.total > 1:
        return f"has {unit.free} of {unit.total} parts free."
    held = [each.pod for each in holders_of(found).get(device, [])]
    if held:
        return f"is in use by {some(sorted(set(held)))}."
    return "is free." if unit.free else "is not in use, and is not free."


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
