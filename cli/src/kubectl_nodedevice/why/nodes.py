"""`why node`: explains why a node cannot serve a pod with one device of each of its resources. Pure."""

from collections.abc import Iterator
from typing import Final

from kubectl_nodedevice.cluster import BY_DRA, Meta, Node, NodeDevice, Pod
from kubectl_nodedevice.quantities import count, is_extended
from kubectl_nodedevice.text import counted, some
from kubectl_nodedevice.why.explanation import Explanation, Obstacle, findings_of
from kubectl_nodedevice.why.facts import NODE_DEVICES, NODES, Facts
from kubectl_nodedevice.why.links import devices, placement, supply
from kubectl_nodedevice.why.links.devices import Wanted

# reasons of Registered with which the scheduler allocates nothing from a driver's pool
_REFUSED: Final = frozenset({"PoolIncomplete", "DevicesRefused"})


def explain(facts: Facts) -> Explanation:
    name = facts.name
    node = facts.node(name) or Node(Meta(name))
    found = [*_own(facts, node), *(each for resource in _resources(facts, node) for each in _of(facts, node, resource))]
    findings = findings_of(found, 1, {"system": facts.release.namespace}, "node")
    return Explanation(
        f"node {name}",
        _state(facts),
        is_stopped=bool(findings),
        findings=findings,
        notes=tuple(_notes(facts)),
        unread=facts.unread,
    )


def _own(facts: Facts, node: Node) -> Iterator[Obstacle]:
    """Examine the node for a pod that requests devices alone."""
    if facts.node(node.meta.name) is None and facts.has_read(NODES):
        yield Obstacle("NodeMissing", node.meta.name)
        return
    yield from supply.kubelet_obstacles(node)
    yield from placement.obstacles(Pod(Meta()), node)
    yield from supply.agent_obstacles(facts, node.meta.name)


def _resources(facts: Facts, node: Node) -> list[str]:
    shown = {each.resource for each in facts.node_devices}
    return sorted(shown | {name for name in node.allocatable if is_extended(name) and count(node.allocatable[name])})


def _of(facts: Facts, node: Node, resource: str) -> tuple[Obstacle, ...]:
    wanted = Wanted(resource)
    found = facts.node_device(node.meta.name, resource)
    if found is not None and found.served_by == BY_DRA:
        registered = found.condition("Registered")
        if registered.reason in _REFUSED:
            return (
                Obstacle(devices.REFUSED, node.meta.name, resource, registered.message, supply.as_of(facts, found)),
            )
        if found.total == 0:
            return (supply.nothing(found),)
        return devices.obstacles(node.meta.name, wanted, devices.units_of(found, facts.now), supply.as_of(facts, found))
    return supply.obstacles(facts, node, wanted)


def _state(facts: Facts) -> str:
    if not facts.has_read(NODE_DEVICES):
        return "has devices that you may not see, if it has any."
    served = counted(len(facts.node_devices), "resource")
    if not facts.node_devices:
        return "has no devices: no plugin has registered there, or no agent runs."
    ready = len([each for each in facts.node_devices if each.condition("Ready").status == "True"])
    return f"has {served}; {ready} {'is' if ready == 1 else 'are'} Ready."


def _notes(facts: Facts) -> Iterator[str]:
    for found in facts.node_devices:
        yield f"{found.resource}: {_numbers(facts, found)}."


def _numbers(facts: Facts, found: NodeDevice) -> str:
    words = {
        devices.CORDONED: "cordoned",
        devices.BROKEN: "unhealthy",
        devices.OTHER_USE: "in other use",
        devices.TAINTED: "tainted",
    }
    units = devices.units_of(found, facts.now)
    held = found.allocated + found.releasing
    parts = [f"{found.available} of {found.total or 0} free"] + ([f"{held} in use"] if held else [])
    for taker, word in words.items():
        ids = [unit.id for unit in units if unit.taken.get(taker) and unit.id]
        parts += [f"{some(ids)} {word}"] if ids else []
    return ", ".join(parts)
