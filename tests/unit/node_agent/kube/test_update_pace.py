"""How often an object that changes without end is decoded, and that its last version is read all the same."""

import asyncio
from typing import Any

import pytest
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.pod_objects import PodObject, seen
from nodedevice_agent.kube.update_pace import AT_ONCE, MOST_TOKENS, take
from nodedevice_common.api_exchange import Request
from nodedevice_common.pacing import TokenBucket

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, query_of
from tests.fakes.api_client import client_of
from tests.fakes.background import background
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.kube.test_watches import RecordedEvents, line, pod

MIB = 1024 * 1024


class TestPace:
    def test_a_few_at_once_and_then_one_a_second(self) -> None:
        buckets = dict[str, TokenBucket]()
        assert [take(buckets, "a", 100, 0.0) for _ in range(AT_ONCE + 1)] == [True] * AT_ONCE + [False]
        assert [take(buckets, "a", 100, now) for now in (0.5, 1.0, 1.5, 2.0)] == [False, True, False, True]

    def test_a_large_one_is_decoded_less_often(self) -> None:
        buckets, at_once = dict[str, TokenBucket](), AT_ONCE // MOST_TOKENS
        assert [take(buckets, "a", MIB, 0.0) for _ in range(at_once + 1)] == [True] * at_once + [False]
        assert [take(buckets, "a", MIB, float(now)) for now in range(1, 11)] == [False] * 9 + [True]

    def test_each_object_has_its_own(self) -> None:
        buckets = dict[str, TokenBucket]()
        while take(buckets, "a", MIB, 0.0):
            pass
        assert take(buckets, "b", MIB, 0.0)


def busy(version: int) -> dict[str, Any]:
    return pod(version, name="busy", namespace="n")


class Server(api_answers.Server):
    """A pod that changes a hundred times in one go. read: its version where it alone is read."""

    def __init__(self, read: int = 101) -> None:
        self.version = 1
        self.read = read
        self.single: list[dict[str, str]] = []

    def answer(self, request: Request) -> Answer:
        query = query_of(request)
        if "watch" in query:
            self.version = 101
            return Answer(b"".join(line("MODIFIED", busy(version)) for version in range(2, 102)), None)
        if "metadata.name" in query["fieldSelector"]:
            self.single.append(query)
            return json_answer({"metadata": {"resourceVersion": "1000"}, "items": [busy(self.read)]})
        return json_answer({"metadata": {"resourceVersion": str(self.version)}, "items": [busy(self.version)]})


async def versions_of(server: Server, seconds: float) -> list[int]:
    """Of the updates that an agent gets within that time."""
    cluster, handler, fields = client_of(server), RecordedEvents(), {"spec.nodeName": "n1"}
    watches = Watches(cluster, asyncio.get_running_loop().time)
    async with background(watches.follow("pods", PodObject, fields, handler, is_urgent=True, keep=seen)):
        await later(seconds)
    await cluster.close()
    return handler.updates


@virtual_time
@pytest.mark.parametrize("read", [101, 3], ids=["the last", "an older one, sent before the watch brought a newer one"])
async def test_of_a_hundred_changes_a_few_are_decoded_and_the_last_is_read(read: int) -> None:
    server = Server(read)
    assert await versions_of(server, 0.9) == [*range(2, AT_ONCE + 2), *[101] * (read == 101)]
    selector = "spec.nodeName=n1,metadata.name=busy,metadata.namespace=n"
    assert {query["fieldSelector"] for query in server.single} == {selector}
    assert len(server.single) <= 2


class Ending(Server):
    """It ends its first watch while the pod is read, and does not respond to that request."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = asyncio.Event()

    def answer(self, request: Request) -> Answer:
        query, is_read = query_of(request), self.is_read
        if "watch" in query and is_read.is_set():
            return Answer(None)
        found = super().answer(request)
        if "watch" in query:
            return EndsThen(is_read, *found.chunks)
        if "metadata.name" in query["fieldSelector"] and not is_read.is_set():
            is_read.set()
            return Answer(None)
        return found


class EndsThen(Answer):
    def __init__(self, then: asyncio.Event, *chunks: bytes | Exception | None) -> None:
        super().__init__(*chunks)
        self._then = then

    async def read(self, seconds: float | None) -> bytes:
        if self.chunks[0] is None:
            await self._then.wait()
            return b""
        return await super().read(seconds)


@virtual_time
async def test_one_that_was_being_read_when_the_watch_ended_is_read_again() -> None:
    assert (await versions_of(Ending(), 20))[-1] == 101
