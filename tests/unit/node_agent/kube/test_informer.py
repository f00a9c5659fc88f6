"""Watches over a transport with canned responses: their lines, their errors, and the budget that all of an agent's share."""

import asyncio
from typing import Any

import pytest
from nodedevice_agent.kube import informer
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import REQUESTS_PER_SECOND, URGENT_REQUESTS_PER_SECOND, Watches
from nodedevice_agent.kube.initial_lists import AT_ONCE, PER_SECOND
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_common.api_connections import Request
from nodedevice_kube.api_errors import ApiError, Gone, Invalid, InvalidResponse, Unavailable
from nodedevice_kube.list_watch import CATCH_UP_SECONDS, GRACE_SECONDS, SILENCE_SECONDS, Policy

from tests.fakes.api_answers import Answer
from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.kube.watched_server import RecordedEvents, Server, line, pod
from tests.unit.node_agent.kube.watched_server import server as server


async def watched(cluster: KubeClient) -> list[tuple[str, Any]]:
    async with cluster.watch(PodObject, {"spec.nodeName": "n1"}, "10", 300) as events:
        return [event async for event in events]


GONE = {"kind": "Status", "code": 410, "message": "too old resource version", "reason": "Expired"}


@virtual_time
@pytest.mark.parametrize(
    ("chunk", "error", "text"),
    [
        pytest.param(line("ERROR", GONE), Gone, "too old resource version", id="ended as too old"),
        pytest.param(line("ERROR", {"code": 500, "reason": "Hiccup"}), Unavailable, "Hiccup", id="an error"),
        pytest.param(line("ERROR", {"code": "x", "message": 7}), Invalid, "HTTP 0", id="an error of another form"),
        pytest.param(b"no JSON\n", InvalidResponse, "cannot decode", id="no JSON"),
    ],
)
async def test_an_event_that_is_an_error_or_none(
    cluster: KubeClient, server: Server, chunk: bytes, error: type[ApiError], text: str
) -> None:
    server.chunks = [chunk]
    with pytest.raises(error, match=text):
        await watched(cluster)


RESOURCES = 100
START_SECONDS, MEASURED_SECONDS = 5.0, 10.0


def advancing(version: int) -> list[bytes | Exception | None]:
    return [line("MODIFIED", pod(version))]


@virtual_time
@pytest.mark.parametrize("brings", [False, True], ids=["nothing", "something new each time"])
async def test_all_watches_together_stay_within_the_budget(
    cluster: KubeClient, server: Server, monkeypatch: pytest.MonkeyPatch, brings: bool
) -> None:
    """Whatever is served, and without any other pause. Pods do not wait for the other resources."""
    monkeypatch.setattr(informer, "POLICY", Policy(0, 0, 0))
    if brings:
        answer = server.answer

        def answer_something_new(request: Request) -> Answer:
            server.chunks = advancing(100 + len(server.asked))
            return answer(request)

        monkeypatch.setattr(server, "answer", answer_something_new)
    watches = Watches(cluster, asyncio.get_running_loop().time)

    async def follow_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watches.follow("pods", PodObject, {}, RecordedEvents(), is_urgent=True))
            for number in range(RESOURCES):
                tasks.create_task(watches.follow(f"n1.{number}", NodeDeviceObject, {}, RecordedEvents()))

    began = asyncio.get_running_loop().time() + START_SECONDS
    async with background(follow_all()):
        await asyncio.sleep(START_SECONDS + MEASURED_SECONDS)
    starting = [when for when, query in server.asked if when <= began]
    # the first list and watch of each have a budget of their own
    assert len(starting) >= 2 * (RESOURCES + 1)
    per_second = PER_SECOND + REQUESTS_PER_SECOND + URGENT_REQUESTS_PER_SECOND
    # the first two of the pods, and what the other budgets have at once
    assert all(index < AT_ONCE + 8 + per_second * (when - starting[0]) for index, when in enumerate(starting))
    assert [query["path"] for _, query in server.asked[: AT_ONCE + 2]].count("/api/v1/pods") >= 2
    later = [query["path"] for when, query in server.asked if began < when <= began + MEASURED_SECONDS]
    most = MEASURED_SECONDS * (REQUESTS_PER_SECOND + URGENT_REQUESTS_PER_SECOND) + 4
    assert len(later) <= most
    assert later.count("/api/v1/pods") >= URGENT_REQUESTS_PER_SECOND * MEASURED_SECONDS
    assert REQUESTS_PER_SECOND + URGENT_REQUESTS_PER_SECOND < 5


async def test_stale_watches_are_named_until_they_end(cluster: KubeClient, server: Server) -> None:
    now = 1000.0
    server.chunks = [None]
    watches = Watches(cluster, lambda: now)
    async with background(watches.follow("pods", PodObject, {}, RecordedEvents())):
        async with asyncio.timeout(60):
            while len(server.asked) < 2:
                await asyncio.sleep(0)
        assert watches.stale() == frozenset()
        now += SILENCE_SECONDS + GRACE_SECONDS + 1
        assert watches.stale() == {"pods"}
    assert watches.stale() == frozenset()


@virtual_time
async def test_one_consistent_read_serves_all_quiet_watches_of_a_kind(
    cluster: KubeClient, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server's cache catches up with it, and so there is a bookmark to send over each of them."""
    monkeypatch.setattr(Watches, "reserve", lambda self, is_urgent: 0)
    server.chunks = [None]
    watches = Watches(cluster, asyncio.get_running_loop().time)

    async def follow_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(watches.follow("pods", PodObject, {}, RecordedEvents()))
            for number in range(10):
                tasks.create_task(watches.follow(f"n1.{number}", NodeDeviceObject, {}, RecordedEvents()))

    async with background(follow_all()):
        await asyncio.sleep(CATCH_UP_SECONDS + 1)
    assert sorted(server.consistent_reads()) == ["/api/v1/pods", "/apis/nodedevice.io/v1alpha1/nodedevices"]


@virtual_time
@pytest.mark.parametrize("is_changed", [False, True], ids=["nothing", "a change"])
async def test_a_silent_watch_is_stale_when_a_list_shows_what_it_did_not_bring(
    cluster: KubeClient, server: Server, is_changed: bool
) -> None:
    """Silence alone proves nothing: an API server has no bookmark to send of a kind that nobody changes."""
    server.chunks = [None]
    watches = Watches(cluster, asyncio.get_running_loop().time)
    found: frozenset[str] = frozenset()
    async with background(watches.follow("pods", PodObject, {}, RecordedEvents())):
        while len(server.asked) < 2:
            await asyncio.sleep(0)
        server.items = [pod(11)] if is_changed else []
        while len(server.asked) < 18:
            found |= watches.stale()
            await asyncio.sleep(1)
    assert found == ({"pods"} if is_changed else frozenset())
