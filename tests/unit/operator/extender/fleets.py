"""Fleets of a few nodes with GPUs of 80 parts, and pods that need some, for the tests of the extender."""

from collections.abc import Mapping
from typing import Any

from nodedevice_api import names
from nodedevice_api.assigned_parts import Assigned
from nodedevice_api.parts import PartRules, Placement
from nodedevice_kube.planner import Need
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds
from nodedevice_operator.objects.node_parts import NodeParts, ParentParts, PodHolding

from tests.fakes.steps import finished

MEM = "aliyun.com/gpu-mem"
SAME = PartRules(Placement.SAME_PARENT)


def needs(*counts: int, sm_percent: int | None = None, problem: str = "", inits: int = 0) -> PodNeeds:
    """One container for each count, the first `inits` of them init containers."""
    containers = tuple(Need(count, i < inits, f"c{i}") for i, count in enumerate(counts))
    return PodNeeds(((MEM, containers),), sm_percent, problem)


def node(
    name: str,
    *available: int,
    holders: Mapping[str, tuple[PodHolding, ...]] | None = None,
    rules: PartRules | None = SAME,
    delivery: str = "nri",
    sm_percent: int | None = None,
    refused: tuple[str, ...] = (),
    healthy: int = 80,
) -> NodeParts:
    """A node with GPUs g0, g1, ... of so many parts."""
    parents = tuple(ParentParts(f"g{i}", healthy, count) for i, count in enumerate(available))
    key = names.node_device_name(name, MEM)
    held = dict(holders or {})
    return NodeParts(key, "u", 1, name, MEM, delivery, rules, sm_percent, parents, held, frozenset(refused))


def fleet(*nodes: NodeParts) -> Fleet:
    made = Fleet()
    for each in nodes:
        made.node_changed(each, 0)
    return made


def pod(uid: str, of: PodNeeds, on: str = "a", assigned: Assigned | None = None, **more: Any) -> BoundPod:
    return BoundPod("ns", uid, uid, 1, on, needs=of, parts=assigned or (), **more)


def given(parent: str, count: int, container: str = "c0") -> Assigned:
    return {MEM: {container: {parent: count}}}


def bind(known: Fleet, uid: str, of: PodNeeds, on: str = "a", now: float = 0) -> Assigned:
    found = known.assign(uid, of, on, now)
    assert not isinstance(found, NotFitting), found.reason
    known.promise(uid, of, on, found, now)
    return found


def reason(known: Fleet, of: PodNeeds, on: str = "a", now: float = 0) -> str:
    """Why another pod does not fit on the node; empty if it does."""
    found = finished(known.filter("probe", of, [on], now))
    return (found.failed | found.unresolvable).get(on, "")
