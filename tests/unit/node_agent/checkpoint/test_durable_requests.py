"""Whose allocations are on disk: each pod waits for its own and for what is of all, whoever is to show them waits for every one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from nodedevice_agent.checkpoint.durable_requests import DurableRequests
from nodedevice_agent.checkpoint.writer import CheckpointWriter


class Disk(CheckpointWriter):
    """It has the requests up to the one that a test says."""

    def __init__(self) -> None:
        self.written = 0
        self._has_written = asyncio.Event()

    def writes(self, number: int) -> None:
        self.written = number
        self._has_written.set()
        self._has_written = asyncio.Event()


class Waiting:
    """Who waits for what, by pod UID; None for everything."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.requests = DurableRequests(self.disk)
        self.tasks: dict[str | None, asyncio.Task[None]] = {}

    def begin(self, *pod_uids: str | None) -> None:
        for uid in pod_uids:
            self.tasks[uid] = asyncio.create_task(self.requests.saved(uid))

    async def done(self) -> set[str | None]:
        for _ in range(10):
            await asyncio.sleep(0)
        return {uid for uid, task in self.tasks.items() if task.done()}


@pytest.fixture
async def waiting() -> AsyncIterator[Waiting]:
    waiting = Waiting()
    yield waiting
    for task in waiting.tasks.values():
        task.cancel()


@pytest.mark.parametrize("pod_uid", [None, "a"])
async def test_before_any_request_nobody_waits(waiting: Waiting, pod_uid: str | None) -> None:
    waiting.begin(pod_uid)
    assert await waiting.done() == {pod_uid}


async def test_each_waits_for_its_own_and_who_shows_them_for_all(waiting: Waiting) -> None:
    for number, uid in enumerate("ab", start=1):
        waiting.requests.add(uid, number)
    waiting.begin("a", "b", "other", None)
    assert await waiting.done() == {"other"}
    waiting.disk.writes(1)
    assert await waiting.done() == {"other", "a"}
    waiting.disk.writes(2)
    assert await waiting.done() == {"other", "a", "b", None}


async def test_everybody_waits_for_what_is_of_all(waiting: Waiting) -> None:
    waiting.requests.add("a", 1)
    waiting.requests.add("", 2)
    waiting.begin("a", "other")
    waiting.disk.writes(1)
    assert not await waiting.done()
    waiting.disk.writes(2)
    assert await waiting.done() == {"a", "other"}


async def test_what_comes_meanwhile_has_to_be_there_as_well(waiting: Waiting) -> None:
    waiting.requests.add("a", 1)
    waiting.begin("a", None)
    await waiting.done()
    waiting.requests.add("b", 2)
    waiting.disk.writes(1)
    assert await waiting.done() == {"a"}
    # and the next one of the same pod
    waiting.requests.add("b", 3)
    waiting.requests.add("a", 4)
    waiting.begin("a", "b")
    waiting.disk.writes(2)
    assert not await waiting.done()
    waiting.disk.writes(3)
    assert await waiting.done() == {"b"}
    waiting.disk.writes(4)
    assert await waiting.done() == {"a", "b", None}
