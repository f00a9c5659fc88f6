"""What the informer makes of the events of a watch: what it stores, which nodes it notifies of, what it cannot decode."""

from typing import Any

import pytest
from nodedevice_operator.kube.lists import NODES, POD_DEVICES

from tests.unit.operator.informers.watched import LAST, Watched, a_line, event


async def test_an_end_is_handled_once_and_only_a_newer_version_is_the_object_again(watched: Watched) -> None:
    ends = event(202, 1, "DELETED"), event(203, 1, "DELETED")
    await watched.watch([event(201, 1), *ends, event(202, 2), LAST, event(1000, 3, "ADDED")], until=3)
    assert (watched.touched, watched.news[0], watched.news[2]) == (["node-a"], ("node-a", None, 1), ("node-a", None, 3))
    assert watched.cache.node_devices.nodes() == frozenset({"node-a", "node-z"})


async def test_poddevices_notify_of_the_node_they_are_on_and_were_on(watched: Watched) -> None:
    lines = []
    for node, uid, version in (("node-a", "p1", "201"), ("node-b", "p2", "202")):
        metadata = {"name": "pod-a", "namespace": "default", "uid": uid, "resourceVersion": version}
        lines.append(a_line("MODIFIED", {"metadata": metadata, "spec": {"nodeName": node, "podUID": uid}}))
    await watched.follow(POD_DEVICES, *lines)
    assert watched.touched == ["node-a", "node-b", "node-a"]


def a_node(version: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "node-x", "uid": "u", "resourceVersion": str(version)}, **more}


async def test_a_node_is_notified_of_when_what_matters_of_it_changed(watched: Watched) -> None:
    beat = a_node(202, status={"capacity": {"cpu": "3"}})
    await watched.follow(NODES, a_line("ADDED", a_node(201)), a_line("MODIFIED", beat))
    assert (watched.touched, watched.server.asked[-1]["resourceVersion"]) == (["node-x"], "202")
    await watched.follow(NODES, a_line("DELETED", beat))
    assert watched.touched == ["node-x", "node-x"]
    assert watched.cache.nodes.get("node-x") is None


@pytest.mark.parametrize(
    "status",
    [[], {"capacity": {"a.b/c": 1}}, {"capacity": {"a.b/c": "TEXT"}}],
    ids=["no status", "a number", "no UTF-8"],
)
async def test_a_node_that_cannot_be_decoded_is_logged_once_until_it_can(
    watched: Watched, status: object, caplog: pytest.LogCaptureFixture
) -> None:
    odd = a_line("MODIFIED", a_node(202, status=status)).replace(b"TEXT", b"\xff")
    await watched.follow(NODES, a_line("ADDED", a_node(201)), *[odd] * 3)
    assert watched.cache.nodes.get("node-x") is not None
    assert watched.cache.nodes.is_invalid("node-x")
    assert watched.touched == ["node-x"]
    assert [record.message for record in caplog.records] == ["cannot decode object; skipping it"]
    await watched.follow(NODES, a_line("MODIFIED", a_node(203)))
    assert not watched.cache.nodes.is_invalid("node-x")
    assert watched.touched == ["node-x", "node-x"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_node_that_is_deleted_needs_no_more_than_its_name(watched: Watched, is_known: bool) -> None:
    odd = a_node(201, status=[])
    await watched.follow(NODES, a_line("ADDED", a_node(201) if is_known else odd), a_line("DELETED", odd))
    assert watched.cache.nodes.get("node-x") is None
    assert watched.touched == ["node-x"] * (2 if is_known else 1)
