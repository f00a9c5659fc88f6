"""Watches over a transport with canned responses: their events and errors, the budget that all share, and when one is stale."""

import asyncio
import json
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest
from nodedevice_agent.kube import informer
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import REQUESTS_PER_SECOND, URGENT_REQUESTS_PER_SECOND, Watches, WatchLoop
from nodedevice_agent.kube.initial_lists import AT_ONCE, MOST_UNDER_WAY, PER_SECOND
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_agent.kube.retries import LONGEST_PAUSE_SECONDS
from nodedevice_common.api_exchange import Broken, Request
from nodedevice_kube.api_errors import ApiError, Gone, Invalid, InvalidResponse, Unavailable
from nodedevice_kube.list_watch import CATCH_UP_SECONDS, GRACE_SECONDS, SILENCE_SECONDS, Policy

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, path_of, query_of
from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time

BOUND = {"spec.nodeName": "n1"}


class Server(api_answers.Server):
    """Lists of `items`, of version 10 and up, and `status` and `chunks` for each watch. fails: raised instead of a list.

    asked: the query of each request, and when (the loop's clock).
    """

    def __init__(self) -> None:
        self.status = 200
        self.version = 9
        self.items: list[dict[str, Any]] = []
        self.fails: Broken | None = None
        self.chunks: list[bytes | Exception | None] = []
        self.asked: list[tuple[float, dict[str, str]]] = []
        # whether each watch brings a newer pod
        self.brings_news = False

    def answer(self, request: Request) -> Answer:
        query = query_of(request)
        self.asked.append((asyncio.get_running_loop().time(), {**query, "path": path_of(request)}))
        if "watch" in query:
            chunks = [line("MODIFIED", pod(100 + len(self.asked)))] if self.brings_news else self.chunks
            return Answer(*chunks, status=self.status)
        if self.fails is not None:
            raise self.fails
        self.version += 1
        return json_answer({"metadata": {"resourceVersion": str(self.version)}, "items": self.items})


def line(event: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": found}, ensure_ascii=False).encode() + b"\n"


def pod(version: int, **metadata: Any) -> dict[str, Any]:
    found = {"name": "one", "uid": "u", "resourceVersion": str(version), **metadata}
    return {"metadata": found, "spec": {"containers": []}, "status": {}}


class RecordedEvents:
    """An EventHandler. lists, updates: the version of each."""

    known_version = 0

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.updates: list[int] = []

    def synced(self, objects: list[Any], version: int) -> None:
        self.lists.append(version)

    def updated(self, found: Any) -> None:
        self.updates.append(int(found.metadata.resourceVersion))

    def deleted(self, found: Any) -> None: ...


async def watched(
    cluster: KubeClient, kind: type[Any] = PodObject, fields: Mapping[str, str] = BOUND
) -> list[tuple[str, Any]]:
    """From version 7 on, until the server ends it."""
    async with cluster.watch(kind, fields, "7", 300) as events:
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


def watches_of(cluster: KubeClient) -> Watches:
    return Watches(cluster, asyncio.get_running_loop().time)


async def follow(watches: Watches, count: int) -> None:
    """The pods, and so many NodeDevices."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(watches.follow("pods", PodObject, {}, RecordedEvents(), is_urgent=True))
        for number in range(count):
            tasks.create_task(watches.follow(f"n1.{number}", NodeDeviceObject, {}, RecordedEvents()))


@virtual_time
@pytest.mark.parametrize("brings", [False, True], ids=["nothing", "something new each time"])
async def test_all_watches_together_stay_within_the_budget(
    cluster: KubeClient, server: Server, monkeypatch: pytest.MonkeyPatch, brings: bool
) -> None:
    """Whatever is served, and without any other pause. Pods do not wait for the other resources."""
    monkeypatch.setattr(informer, "POLICY", Policy(0, 0, 0))
    server.brings_news = brings
    began = asyncio.get_running_loop().time() + START_SECONDS
    async with background(follow(watches_of(cluster), RESOURCES)):
        await asyncio.sleep(START_SECONDS + MEASURED_SECONDS)
    starting = [when for when, query in server.asked if when <= began]
    # the first list and watch of each have a budget of their own
    assert len(starting) >= 2 * (RESOURCES + 1)
    per_second = PER_SECOND + REQUESTS_PER_SECOND + URGENT_REQUESTS_PER_SECOND
    # the first two of the pods, and what the other budgets have at once
    assert all(index < AT_ONCE + 8 + per_second * (when - starting[0]) for index, when in enumerate(starting))
    assert [query["path"] for _, query in server.asked[: AT_ONCE + 2]].count("/api/v1/pods") >= 2
    later = [query["path"] for when, query in server.asked if began < when <= began + MEASURED_SECONDS]
    if brings:
        # a watch continues from the last version
        assert all("watch" in query for when, query in server.asked if when > began)
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
    async with background(follow(watches_of(cluster), 10)):
        await asyncio.sleep(CATCH_UP_SECONDS + 1)
    # of one object, and so of all that the API server has
    reads = sorted(query["path"] for _, query in server.asked if query.get("limit") == "1")
    assert reads == ["/api/v1/pods", "/apis/nodedevice.io/v1alpha1/nodedevices"]


@virtual_time
@pytest.mark.parametrize("is_changed", [False, True], ids=["nothing", "a change"])
async def test_a_silent_watch_is_stale_when_a_list_shows_what_it_did_not_bring(
    cluster: KubeClient, server: Server, is_changed: bool
) -> None:
    """Silence alone proves nothing: an API server has no bookmark to send of a kind that nobody changes."""
    server.chunks = [None]
    watches, found = watches_of(cluster), frozenset[str]()
    async with background(watches.follow("pods", PodObject, {}, RecordedEvents())):
        while len(server.asked) < 2:
            await asyncio.sleep(0)
        server.items = [pod(11)] if is_changed else []
        while len(server.asked) < 18:
            found |= watches.stale()
            await asyncio.sleep(1)
    assert found == ({"pods"} if is_changed else frozenset())


def once(watches: Watches, handler: RecordedEvents | None = None) -> Awaitable[None]:
    """The first list and watch of an object."""
    return WatchLoop(watches, NodeDeviceObject, {}, handler or RecordedEvents()).list_and_watch()


@virtual_time
async def test_a_watch_that_is_open_holds_up_none_that_begins(cluster: KubeClient, server: Server) -> None:
    server.chunks, count = [None], 2 * MOST_UNDER_WAY
    async with background(follow(watches_of(cluster), count)):
        await asyncio.sleep(CATCH_UP_SECONDS / 2)
    assert sum("watch" in query for _, query in server.asked) == count + 1


@virtual_time
@pytest.mark.parametrize(
    ("ask", "fails", "status"),
    [
        pytest.param(once, Broken("cut"), 200, id="list"),
        pytest.param(once, None, 503, id="watch"),
        pytest.param(lambda watches: watches.list_once(PodObject, {}), Broken("cut"), 200, id="list once"),
    ],
)
async def test_a_request_that_has_failed_holds_up_nobody(
    cluster: KubeClient, server: Server, ask: Callable[[Watches], Awaitable[object]], fails: Broken | None, status: int
) -> None:
    server.fails, server.status = fails, status
    watches = watches_of(cluster)
    for _ in range(2 * MOST_UNDER_WAY):
        with pytest.raises(ApiError):
            async with asyncio.timeout(60):
                await ask(watches)


@virtual_time
@pytest.mark.parametrize("chunks", [[], [line("MODIFIED", pod(5))]], ids=["nothing", "what is known"])
async def test_watches_that_bring_nothing_are_logged_once(
    cluster: KubeClient, server: Server, chunks: list[bytes | Exception | None], caplog: pytest.LogCaptureFixture
) -> None:
    """As behind a proxy that ends them at once."""
    server.chunks = chunks
    async with background(watches_of(cluster).follow("pods", PodObject, {}, RecordedEvents())):
        await asyncio.sleep(5 * LONGEST_PAUSE_SECONDS)
    assert len(server.asked) > 6
    [warning] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "the API server ended the watch at once" in vars(warning)["error"]


@virtual_time
async def test_of_versions_that_went_back_nothing_holds_that_was_known(
    cluster: KubeClient, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    handler = RecordedEvents()
    server.version = 99
    loop = WatchLoop(watches_of(cluster), NodeDeviceObject, {}, handler)
    await loop.list_and_watch()
    server.version = 10
    for _ in range(2):
        await loop.list_and_watch()
    # a response to a write has shown a higher one
    handler.known_version = 200
    await loop.list_and_watch()
    assert handler.lists == [100, sys.maxsize, 12, sys.maxsize]
    assert sum(record.message.startswith("list is older than the last one") for record in caplog.records) == 2


@virtual_time
async def test_what_a_response_to_a_write_has_shown_is_read_no_further(cluster: KubeClient, server: Server) -> None:
    handler = RecordedEvents()
    handler.known_version = 20
    # the first ones are no NodeDevices
    server.chunks = [line("ADDED", {**pod(19), "spec": 7}), line("MODIFIED", {**pod(20), "spec": 7})]
    server.chunks += [line("MODIFIED", pod(21)), line("DELETED", pod(20))]
    await once(watches_of(cluster), handler)
    assert handler.updates == [21]


@virtual_time
async def test_a_change_from_before_a_watch_is_no_reason_to_doubt_that_watch(
    cluster: KubeClient, server: Server
) -> None:
    server.status, server.items = 503, [pod(5)]
    watches = watches_of(cluster)
    async with background(watches.follow("pods", PodObject, {}, RecordedEvents())):
        await asyncio.sleep(SILENCE_SECONDS - 10)
        server.status, server.items, server.chunks = 200, [pod(6)], [None]
        await asyncio.sleep(LONGEST_PAUSE_SECONDS + 1)
        assert watches.stale() == frozenset()


@virtual_time
async def test_what_a_watch_brought_is_not_kept_while_it_waits(cluster: KubeClient, server: Server) -> None:
    """Of a few hundred watches, each of which may have brought 20,000 devices."""
    octets = 1 << 20
    server.chunks = [line("ADDED", pod(11, annotations={"list": "d" * octets})), None]
    handler = RecordedEvents()
    watch = WatchLoop(watches_of(cluster), PodObject, {}, handler)
    tracemalloc.start()
    try:
        async with background(watch.run()):
            await asyncio.sleep(CATCH_UP_SECONDS * 2)
            assert handler.updates == [11]
            kept, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most > octets
    assert kept < octets / 2
