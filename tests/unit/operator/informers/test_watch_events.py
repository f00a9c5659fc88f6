"""What the informer makes of the events of a watch: what it stores, which nodes it notifies of, what it cannot decode."""

import json
import threading
from typing import Any

import pytest
from nodedevice_kube.api_errors import InvalidResponse
from nodedevice_operator.kube.client import CORE
from nodedevice_operator.kube.lists import NODES, POD_DEVICES, Kind
from nodedevice_operator.objects.node import NodeRecord, NodeSchema, node_record

from tests.unit.operator.informers.watched import LAST, Watched, a_line, event, informer_of


async def test_an_invalid_object_holds_up_nobody(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    body = {"metadata": {"name": "odd", "resourceVersion": "300"}, "spec": []}
    odd = json.dumps({"type": "ADDED", "object": body}).encode() + b"\n"
    watched.server.answers = [[odd, event(301, 1)], [LAST]]
    watched.start()
    await watched.until(2)
    assert "cannot decode object; skipping it" in [record.message for record in caplog.records]
    assert watched.server.asked[1]["resourceVersion"] == "301"


async def test_an_end_is_handled_once(watched: Watched) -> None:
    watched.server.answers = [[event(201, 1), event(202, 1, "DELETED"), event(203, 1, "DELETED"), LAST]]
    watched.start()
    await watched.until(2)
    assert watched.touched == ["node-a"]
    assert watched.cache.node_devices.nodes() == {"node-z"}


async def test_poddevices_notify_of_the_node_they_are_on_and_were_on(watched: Watched) -> None:
    informer = informer_of(watched, POD_DEVICES)
    for node, uid, version in (("node-a", "p1", "1"), ("node-b", "p2", "2")):
        body = {
            "metadata": {"name": "pod-a", "namespace": "default", "uid": uid, "resourceVersion": version},
            "spec": {"nodeName": node, "podUID": uid},
        }
        await informer._take(a_line("MODIFIED", body))
    assert watched.touched == ["node-a", "node-b", "node-a"]


async def test_a_node_is_notified_of_when_what_matters_of_it_changed(watched: Watched) -> None:
    informer = informer_of(watched, NODES)
    metadata = {"name": "node-a", "uid": "u", "resourceVersion": "1"}
    await informer._take(a_line("ADDED", {"metadata": metadata}))
    beat = {"metadata": {**metadata, "resourceVersion": "2"}, "status": {"capacity": {"cpu": "3"}}}
    assert await informer._take(a_line("MODIFIED", beat)) == 2
    assert watched.touched == ["node-a"]
    await informer._take(a_line("DELETED", beat))
    assert watched.touched == ["node-a", "node-a"]
    assert watched.cache.nodes.values() == []


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(
            {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"}, "status": []}, id="no status"
        ),
        pytest.param(
            {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"}, "status": {"capacity": {"a.b/c": 1}}},
            id="a number",
        ),
        pytest.param(
            {
                "metadata": {"name": "node-a", "uid": "u", "resourceVersion": "2"},
                "status": {"capacity": {"a.b/c": "TEXT"}},
            },
            id="no UTF-8",
        ),
    ],
)
async def test_a_node_that_cannot_be_decoded_is_logged_once_until_it_can(
    watched: Watched, body: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    informer = informer_of(watched, NODES)
    await informer._take(a_line("ADDED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}}))
    for _ in range(3):
        await informer._take(a_line("MODIFIED", body).replace(b"TEXT", b"\xff"))
    assert watched.cache.nodes.get("node-a") is not None
    assert watched.cache.nodes.is_invalid("node-a")
    assert watched.touched == ["node-a"]
    assert [record.message for record in caplog.records] == ["cannot decode object; skipping it"]
    await informer._take(a_line("MODIFIED", {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "3"}}))
    assert not watched.cache.nodes.is_invalid("node-a")
    assert watched.touched == ["node-a", "node-a"]


@pytest.mark.parametrize("is_known", [False, True])
async def test_a_node_that_is_deleted_needs_no_more_than_its_name(watched: Watched, is_known: bool) -> None:
    informer = informer_of(watched, NODES)
    body: dict[str, Any] = {"metadata": {"name": "node-a", "uid": "u", "resourceVersion": "1"}}
    await informer._take(a_line("ADDED", body if is_known else {**body, "status": []}))
    watched.touched.clear()
    await informer._take(a_line("DELETED", {**body, "status": []}))
    assert watched.cache.nodes.values() == []
    assert watched.touched == ["node-a"]


@pytest.mark.parametrize("metadata", [{"name": 3}, []])
async def test_a_node_without_a_name_is_an_invalid_event(watched: Watched, metadata: Any) -> None:
    with pytest.raises(InvalidResponse):
        await informer_of(watched, NODES)._take(a_line("ADDED", {"metadata": metadata}))


async def test_a_long_object_is_decoded_in_a_thread(watched: Watched) -> None:
    """A leader must renew its Lease meanwhile; and whatever comes after it in the watch waits for it."""
    made: list[bool] = []

    def noted(obj: NodeSchema) -> NodeRecord:
        made.append(threading.current_thread() is threading.main_thread())
        return node_record(obj)

    informer = informer_of(watched, Kind("nodes", CORE, NodeSchema, noted, needs_status=True))
    capacity = {f"example.com/r{number}": "1" for number in range(4000)}
    metadata = {"name": "node-a", "uid": "u", "resourceVersion": "1"}
    await informer._take(a_line("ADDED", {"metadata": metadata, "status": {"capacity": capacity}}))
    assert made == [False]
    assert watched.cache.nodes.by_key["node-a"].resource_version == 1
    await informer._take(a_line("MODIFIED", {"metadata": {**metadata, "resourceVersion": "2"}, "status": {}}))
    assert made == [False, True], "a short one takes less than the start of a thread"
