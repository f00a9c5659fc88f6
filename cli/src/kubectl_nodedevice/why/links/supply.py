"""Explains why a node does not serve an extended resource: ours, the kubelet's, or a number that another client wrote. Pure.

The links in order: agent, plugin, injection, the Node's number, devices. Links behind a broken one are examined as well: an
unhealthy device stays unhealthy when the agent is back.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from kubectl_nodedevice.cluster import BY_DRA, BY_KUBELET, NO_CONDITION, Node, NodeDevice
from kubectl_nodedevice.quantities import count
from kubectl_nodedevice.text import age, moment
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import LEASES, NODES, Facts
from kubectl_nodedevice.why.kinds import DeviceClass
from kubectl_nodedevice.why.links import devices, offers
from kubectl_nodedevice.why.links.devices import Wanted

_POLICY: Final = frozenset({"PolicyPending", "TooManyNames", "NameExcluded"})
_REFUSED: Final = frozenset({"UpdateRefused", "WriteRefused"})
_DEVICES_REFUSED: Final = "DevicesRefused"
_NOT_AN_AGENTS: Final = frozenset({"NodeMissing", "WrongName", "NotAdvertised"})


def serves(facts: Facts, node: Node, resource: str) -> bool:
    """Whether the node has that resource in any way, healthy or not."""
    if facts.node_device(node.meta.name, resource) is not None or resource in node.allocatable:
        return True
    return any(offers.may_have(facts, each, node.meta.name) for each in offers.classes_for(facts, resource))


def obstacles(facts: Facts, node: Node, wanted: Wanted) -> tuple[Obstacle, ...]:
    """Return all obstacles to the resource on that node; each suffices alone."""
    found = facts.node_device(node.meta.name, wanted.resource)
    if found is not None and found.served_by == BY_KUBELET:
        return tuple(_of_kubelet(facts, node, found, wanted))
    classes, number = offers.classes_for(facts, wanted.resource), shown_number(node, wanted.resource)
    if found is not None and found.served_by != BY_DRA:
        ours = tuple(_ours(facts, node, found, wanted))
        # a node without a number may serve it by claims
        is_by_claim = not number and _is_by_claim(facts, node, wanted, classes)
        return () if is_by_claim else ours
    if not classes:
        return tuple(_only_a_number(node, wanted))
    if number:
        detail = stray_number(node, wanted.resource)
        return (Obstacle("StrayCapacity", node.meta.name, wanted.resource, detail),)
    # The scheduler takes the later of two classes with one name; either may be it.
    return min((offers.obstacles(facts, node.meta.name, each, wanted) for each in classes), key=len)


def _is_by_claim(facts: Facts, node: Node, wanted: Wanted, classes: Sequence[DeviceClass]) -> bool:
    """Whether a DRA driver may have enough on the node."""
    return any(
        offers.may_have(facts, each, node.meta.name) and not offers.obstacles(facts, node.meta.name, each, wanted)
        for each in classes
    )


def shown_number(node: Node, resource: str) -> int | None:
    """Return the number in the Node's allocatable; None if the Node lacks the resource."""
    quantity = node.allocatable.get(resource)
    return None if quantity is None else count(quantity)


def _only_a_number(node: Node, wanted: Wanted) -> Iterator[Obstacle]:
    number = shown_number(node, wanted.resource)
    if number is not None and number < wanted.count:
        fields = {"count": str(wanted.count)}
        yield Obstacle("NodeShowsFewer", node.meta.name, wanted.resource, f"it shows {number}", fields=fields)


def stray_number(node: Node, resource: str) -> str:
    owner = node.writers.get(resource)
    return f"it shows {shown_number(node, resource)}{f', written by {owner}' if owner else ''}"


def _of_kubelet(facts: Facts, node: Node, found: NodeDevice, wanted: Wanted) -> Iterator[Obstacle]:
    away = _plugin(facts, found)
    yield from away
    short = _short(facts, found, _placed(wanted, found), is_away=bool(away))
    yield from short
    if not away and not short:
        yield from _only_a_number(node, wanted)


def _short(facts: Facts, found: NodeDevice, wanted: Wanted, *, is_away: bool) -> tuple[Obstacle, ...]:
    """Explain a shortage of devices, unless a disconnected plugin may have some."""
    if found.total == 0:
        return () if is_away else (nothing(found),)
    units = devices.units_of(found, facts.now, is_away=is_away, predecessors=facts.predecessors)
    short = devices.obstacles(found.node, wanted, units, as_of(facts, found))
    is_refused = found.condition("Registered").reason == _DEVICES_REFUSED
    # the refused devices may be the missing ones
    return (nothing(found), *short) if is_refused and any(each.code == "TooFewTogether" for each in short) else short


def nothing(found: NodeDevice) -> Obstacle:
    registered, healthy = found.condition("Registered"), found.condition("Healthy")
    if registered.reason == _DEVICES_REFUSED:
        return _of(found, "DevicesRefused", registered.message)
    return _of(found, "NoDevices", (healthy.message or registered.message).rstrip("."))


def _of(found: NodeDevice, code: str, detail: str) -> Obstacle:
    return Obstacle(code, found.node, found.resource, detail, fields={"node_device": found.name})


def _ours(facts: Facts, node: Node, found: NodeDevice, wanted: Wanted) -> Iterator[Obstacle]:
    wanted = _placed(wanted, found)
    away = _plugin(facts, found)
    chain = [*agent_obstacles(facts, found.node, found), *away, *_delivery(found)]
    chain += _on_node(facts, node, found, wanted)
    yield from chain
    short = _short(facts, found, wanted, is_away=bool(away))
    yield from short
    if not chain and not short:
        yield from _behind(facts, node, found, wanted)


def _placed(wanted: Wanted, found: NodeDevice) -> Wanted:
    return replace(wanted, rules=found.parts) if found.parts else wanted


def kubelet_obstacles(node: Node) -> tuple[Obstacle, ...]:
    ready = node.conditions.get("Ready")
    if ready is None or ready.status == "True":
        return ()
    return (Obstacle("NodeNotReady", node.meta.name, detail=ready.message or ready.reason),)


def agent_obstacles(facts: Facts, node: str, found: NodeDevice | None = None) -> tuple[Obstacle, ...]:
    """Explain a silent agent: by the operator's condition, and by the Lease if the condition may be stale."""
    lease, ready = facts.lease(node), found.condition("AgentReady") if found else NO_CONDITION
    if lease is None and (facts.has_read(LEASES) or ready.reason == "LeaseMissing"):
        return (Obstacle("NoAgent", node, detail="it has no Lease"),)
    is_silent = ready.status not in ("True", "")
    if not is_silent and not (lease and lease.is_overdue(facts.now)):
        return ()
    since = age(lease.renewed if lease else ready.since, facts.now)
    return (Obstacle("AgentSilent", node, detail=f"for {since}" if since else ""),)


def as_of(facts: Facts, found: NodeDevice) -> str:
    """Return since when the status may be stale; "" if the agent is alive and its watch works."""
    lease, ready, current = facts.lease(found.node), found.condition("AgentReady"), found.condition("WatchesCurrent")
    if agent_obstacles(facts, found.node, found):
        since = lease.renewed if lease else ready.since
    elif current.status == "False":
        since = current.since
    else:
        return ""
    return f"{age(since, facts.now)} ago" if moment(since) else "an unknown time"


def _plugin(facts: Facts, found: NodeDevice) -> tuple[Obstacle, ...]:
    registered, state = found.condition("Registered"), found.endpoint.state
    if registered.status != "False" and state not in ("Stopped", "Gone"):
        return ()
    since = age(found.endpoint.since or registered.since, facts.now)
    detail = f"{registered.reason or state}{f' for {since}' if since else ''}"
    if registered.reason == "PlaceTaken":
        return (_of(found, "PlaceTaken", detail),)
    code = "NotConfigured" if registered.reason == "NotConfigured" else "PluginAway"
    return (Obstacle(code, found.node, found.resource, detail),)


def _delivery(found: NodeDevice) -> Iterator[Obstacle]:
    injectable = found.condition("Injectable")
    if injectable.status == "False":
        yield _of(found, "NotInjectable", injectable.reason)
    advertised = found.condition("Advertised")
    if found.total is None or (advertised.status == "False" and advertised.reason in _NOT_AN_AGENTS):
        yield _of(found, "NodeDeviceInvalid", advertised.reason or "no agent has written its status")


def _on_node(facts: Facts, node: Node, found: NodeDevice, wanted: Wanted) -> Iterator[Obstacle]:
    """Explain why the operator does not write the Node's number, if that leaves too little for the pod."""
    if not facts.has_read(NODES) or _shown_free(node, found) >= wanted.count:
        return
    conflict, advertised = found.condition("Conflict"), found.condition("Advertised")
    if conflict.status == "True":
        owner = node.writers.get(found.resource)
        detail = f"{conflict.reason}{f', {owner}' if owner else ''}, it shows {shown_number(node, found.resource) or 0}"
        yield _of(found, "CapacityConflict", detail)
    elif advertised.status == "False" and advertised.reason in _POLICY:
        yield _of(found, "PolicyRefuses", advertised.reason)
    elif advertised.status == "False" and advertised.reason in _REFUSED:
        yield _of(found, "CapacityRefused", advertised.reason)


def _shown_free(node: Node, found: NodeDevice) -> int:
    """Return how many units the scheduler can still allocate by the Node's number."""
    return (shown_number(node, found.resource) or 0) - found.allocated - found.reserved


def _behind(facts: Facts, node: Node, found: NodeDevice, wanted: Wanted) -> Iterator[Obstacle]:
    if facts.has_read(NODES) and found.agent.known_delivery != "kubelet" and _shown_free(node, found) < wanted.count:
        detail = f"it shows {shown_number(node, found.resource) or 0}, {found.available} are available"
        yield _of(found, "CapacityBehind", detail)
