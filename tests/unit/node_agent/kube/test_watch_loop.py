"""The lists and watches of one kind: what they keep others from, what is counted and logged of them, and what a list says."""

import asyncio
import sys
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.informer import Watches, WatchLoop
from nodedevice_agent.kube.initial_lists import MOST_UNDER_WAY
from nodedevice_agent.kube.objects import NodeDeviceObject
from nodedevice_agent.kube.pod_objects import PodObject
from nodedevice_agent.kube.retries import LONGEST_PAUSE_SECONDS
from nodedevice_common.api_connections import Broken
from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.list_watch import CATCH_UP_SECONDS, SILENCE_SECONDS

from tests.fakes.background import background
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.kube.watched_server import RecordedEvents, Server, line, pod
from tests.unit.node_agent.kube.watched_server import server as server


def watches_of(cluster: KubeClient) -> Watches:
    return Watches(cluster, asyncio.get_running_loop().time)


def once(watches: Watches, handler: RecordedEvents | None = None) -> Awaitable[None]:
    """The first list and watch of an object."""
    return WatchLoop(watches, NodeDeviceObject, {}, handler or RecordedEvents()).list_and_watch()


# -- turns --------------------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_watch_that_is_open_holds_up_none_that_begins(cluster: KubeClient, server: Server) -> None:
    server.chunks = [None]
    watches, count = watches_of(cluster), 2 * MOST_UNDER_WAY

    async def follow_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                tasks.create_task(watches.follow(f"n1.{number}", NodeDeviceObject, {}, RecordedEvents()))

    async with background(follow_all()):
        await asyncio.sleep(CATCH_UP_SECONDS / 2)
    assert sum("watch" in query for _, query in server.asked) == count


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
    cluster: KubeClient,
    server: Server,
    ask: Callable[[Watches], Awaitable[object]],
    fails: Broken | None,
    status: int,
) -> None:
    server.fails, server.status = fails, status
    watches = watches_of(cluster)
    for _ in range(2 * MOST_UNDER_WAY):
        with pytest.raises(ApiError):
            async with asyncio.timeout(60):
                await ask(watches)


# -- consistent reads ---------------------------------------------------------------------------------------------------------


# -- what is logged -----------------------------------------------------------------------------------------------------------


# -- what a list says ---------------------------------------------------------------------------------------------------------


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


# -- memory -------------------------------------------------------------------------------------------------------------------


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
