"""Requests of kube-scheduler, as bytes, answered from a small fleet: the forms of Go's types, and what is no request."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
from nodedevice_api.names import node_device_name
from nodedevice_api.parts import PartRules
from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.server import NotActive
from nodedevice_operator.extender.stores import FleetStores
from nodedevice_operator.extender.verbs import LATER, NO_FIT, OK, Verbs
from nodedevice_operator.extender.wire import BadRequest
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.bound_pod import BoundPodSchema, pod_needs
from nodedevice_operator.objects.node_parts import NodeParts, ParentParts

from tests.fakes.operator.collaborators import open_fence, running

MEMORY = "example.com/gpu-mem"


def pod(units: int = 4, **metadata: Any) -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {MEMORY: str(units)}}}
    return {"metadata": {"name": "p", "namespace": "d", "uid": "u", **metadata}, "spec": {"containers": [container]}}


def request(of: dict[str, Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"Pod": of or pod(), **more}).encode()


async def verbs(
    fence: WriteFence | None = None, nodes: int = 2, fleet: Fleet | None = None, *, names_best: bool = False
) -> Verbs:
    """Of nodes n0, n1 … with one GPU of 8 parts each, of which n0 has 2 left. Active if the fence is open."""
    fleet = fleet or Fleet()
    stores = FleetStores(fleet, lambda _: None).stores["nodedevices"]
    for i in range(nodes):
        gpu = ParentParts("GPU", 8, 8 if i else 2)
        name = node_device_name(f"n{i}", MEMORY)
        stores.put(NodeParts(name, f"uid-{i}", 1, f"n{i}", MEMORY, "nri", PartRules(), parents=(gpu,)))
    activity = Activity(fence or open_fence(), ())
    activity.begin_term(True)
    async with running(activity.work()):
        await asyncio.sleep(0)
    # none of these requests gets to the API
    binder = Binder(fleet, PodsApi.__new__(PodsApi), ExtenderMetrics())
    return Verbs(fleet, binder, activity, "binpack", names_best=names_best)


async def test_nodes_by_name_are_answered_by_name_and_one_that_is_unknown_with_its_reason() -> None:
    names = [f"n{i}" for i in range(4999)]
    made = await verbs(nodes=4999)
    body, outcome = await made.filter(request(NodeNames=[*names, "unknown"]))
    answer = json.loads(body)
    assert (outcome, answer["NodeNames"], "Nodes" in answer) == (OK, names[1:], False)
    assert (set(answer["FailedNodes"]), set(answer["FailedAndUnresolvableNodes"])) == ({"n0"}, {"unknown"})


@pytest.mark.parametrize(
    ("tolerations", "names_best", "named"),
    [([], True, ["n1"]), ([{"effect": "PreferNoSchedule"}], True, ["n2", "n1"]), ([], False, ["n2", "n1"])],
    ids=["no preference", "a preference", "not set"],
)
async def test_one_node_is_named_for_a_pod_without_a_preference_if_it_is_set(
    tolerations: list[Any], names_best: bool, named: list[str]
) -> None:
    asked = pod()
    asked["spec"]["tolerations"] = tolerations
    made = await verbs(nodes=3, names_best=names_best)
    answer = json.loads((await made.filter(request(asked, NodeNames=["n2", "n1", "n0"])))[0])
    assert answer["NodeNames"] == named
    assert answer.get("FailedNodes", {}).keys() == ({"n0"} if len(named) > 1 else set())


async def test_a_filter_waits_while_too_many_binds_are_under_way() -> None:
    made = await verbs()
    waits = asyncio.Event()
    made._binder.wait_for_room = waits.wait  # type: ignore[assignment]  # its own test has the number
    filtered = asyncio.create_task(made.filter(request(NodeNames=["n1"])))
    await asyncio.sleep(0)
    assert not filtered.done()
    waits.set()
    assert (await filtered)[1] == OK


async def test_whole_nodes_are_answered_whole() -> None:
    nodes = [{"metadata": {"name": name, "labels": {"a": "b"}}, "status": {}} for name in ("n0", "n1")]
    made = await verbs()
    body, _ = await made.filter(request(Nodes={"items": nodes}))
    assert json.loads(body)["Nodes"] == {"items": [nodes[1]]}
    body, outcome = await made.filter(request(pod(9), Nodes={"items": nodes}))
    assert (json.loads(body)["NodeNames"], outcome) == ([], NO_FIT)


async def test_room_that_comes_soon_is_an_error_which_the_scheduler_tries_again() -> None:
    fleet = Fleet()
    made = await verbs(fleet=fleet)
    # its parts stay taken for longer than any test runs
    later, eight = time.monotonic() + 3600, pod_needs(msgspec.convert(pod(8), BoundPodSchema))
    fleet.promise("other", eight, "n1", {}, later)
    fleet.pod_gone("other", later)
    body, outcome = await made.filter(request(NodeNames=["n0", "n1"]))
    reason = f"4 of {MEMORY} needed, and 0 are free; retrying, as pods that leave node n1 make room"
    assert (json.loads(body), outcome) == ({"Error": reason}, LATER)


async def test_priorities_have_go_names() -> None:
    body, outcome = await (await verbs(nodes=3)).prioritize(request(NodeNames=["n1", "n2"]))
    found = {entry["Host"]: entry["Score"] for entry in json.loads(body)}
    assert (set(found), max(found.values()), outcome) == ({"n1", "n2"}, 10, OK)


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        ({"NodeNames": []}, "missing required field `Pod`"),
        ({"Pod": pod()}, "neither NodeNames nor Nodes"),
        ({"Pod": pod(uid=""), "NodeNames": []}, "no metadata.uid"),
        ({"Pod": pod(), "NodeNames": [1]}, "Expected `str`, got `int`"),
        ({"Pod": pod(), "Nodes": {"items": [{"metadata": {}}]}}, "missing required field `name`"),
    ],
)
async def test_what_is_no_request_is_explained(request_: Any, problem: str) -> None:
    made = await verbs()
    for verb in (made.filter, made.prioritize):
        with pytest.raises(BadRequest, match=problem):
            await verb(json.dumps(request_).encode())


@pytest.mark.parametrize(
    ("field", "victim"),
    [("NodeNameToMetaVictims", {"UID": "v"}), ("NodeNameToVictims", {"metadata": {"uid": "v"}})],
    ids=["by uid", "whole pods"],
)
async def test_a_preemption_is_answered_by_uid_for_the_nodes_where_it_helps(field: str, victim: Any) -> None:
    victims = {node: {"Pods": [victim], "NumPDBViolations": 1} for node in ("n0", "n1")}
    body, outcome = await (await verbs()).preempt(request(**{field: victims}))
    expected = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    assert (json.loads(body), outcome) == ({"NodeNameToMetaVictims": expected}, OK)


async def test_a_preemption_has_victims_and_a_bind_names_everything() -> None:
    made = await verbs()
    with pytest.raises(BadRequest, match="neither NodeNameToMetaVictims nor NodeNameToVictims"):
        await made.preempt(request())
    with pytest.raises(BadRequest, match="must not be empty"):
        await made.bind(b'{"PodName": "p", "PodNamespace": "d", "PodUID": "", "Node": "n"}')


async def test_a_standby_answers_no_verb() -> None:
    made = await verbs(WriteFence())
    for verb in made.by_name().values():
        with pytest.raises(NotActive, match="stands by"):
            await verb(b"{}")
