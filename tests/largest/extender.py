"""The largest request that kube-scheduler may send to the extender, and the largest events; see agent.py."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

from nodedevice_kube.planner import MOST_CONTAINERS
from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.http_protocol import MOST_REQUEST_BYTES
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.verbs import Verbs

from tests.fakes.operator.collaborators import open_fence
from tests.largest.node import Scenario, beat
from tests.unit.operator.extender.fleets import MEM, needs, node, pod

NODES: Final = 5000
_GPUS: Final = (20,) * 8


class _Api(PodsApi):
    """The binds of the scenario get no answer."""

    def __init__(self) -> None: ...


def _verbs(nodes: int) -> tuple[Verbs, Fleet, list[str]]:
    fleet, names = Fleet(), [f"node-{number:04}" for number in range(nodes)]
    for name in names:
        fleet.node_changed(node(name, *_GPUS), 0)
    activity = Activity(open_fence(), ())
    activity._read_term = activity._term
    return Verbs(fleet, Binder(fleet, _Api(), ExtenderMetrics()), activity, "binpack"), fleet, names


def _pod(containers: int) -> dict[str, Any]:
    asking = [{"name": f"c{n}", "resources": {"limits": {MEM: "1"}}} for n in range(containers)]
    return {"metadata": {"name": "p", "namespace": "d", "uid": "new"}, "spec": {"priority": 9, "containers": asking}}


async def requests_by_name(folder: Path) -> AsyncIterator[None]:
    """A pod of as many containers as are planned for, of one, and of far too many, on all nodes of a large cluster."""
    verbs, _, names = _verbs(NODES)
    # each of the first takes as long as many of the others, and none a turn of its own
    asked = ((MOST_CONTAINERS, names[:50]), (1, names), (2500, names))
    bodies = [json.dumps({"Pod": _pod(count), "NodeNames": on}).encode() for count, on in asked]
    yield
    for body in bodies:
        for verb in (verbs.filter, verbs.prioritize):
            await beat()
            await verb(body)


async def requests_with_whole_nodes(folder: Path) -> AsyncIterator[None]:
    """From a scheduler that is not nodeCacheCapable: as many octets as a request may have."""
    verbs, _, names = _verbs(1500)
    padding = {"labels": {f"label-{number}": "x" * 60 for number in range(110)}}
    items = [{"metadata": {"name": name, **padding}, "status": {"images": []}} for name in names]
    body = json.dumps({"Pod": _pod(1), "Nodes": {"items": items}}).encode()
    assert MOST_REQUEST_BYTES * 0.7 < len(body) <= MOST_REQUEST_BYTES, len(body)
    yield
    await beat()
    await verbs.filter(body)


async def preemptions(folder: Path) -> AsyncIterator[None]:
    """On nodes that are full of pods, of which none is enough."""
    verbs, fleet, names = _verbs(20)
    for number, name in enumerate(names):
        for each in range(40):
            fleet.pod_changed(pod(f"{number}-{each}", needs(2), name), 0)
    victims = {name: {"Pods": [{"UID": f"{number}-0"}]} for number, name in enumerate(names)}
    body = json.dumps({"Pod": _pod(MOST_CONTAINERS), "NodeNameToMetaVictims": victims}).encode()
    yield
    await beat()
    await verbs.preempt(body)


SCENARIOS: Final[tuple[Scenario, ...]] = (requests_by_name, requests_with_whole_nodes, preemptions)
