"""Whose allocations are on disk: each pod waits for its own and for what is of all, whoever is to show them waits for every one."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

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


@contextmanager
def waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    for task in made.tasks.values():
        task.cancel()


@pytest.mark.parametrize("pod_uid", [None, "a"])
async def test_before_any_request_nobody_waits(pod_uid: str | None) -> None:
    with waiting() as made:
        made.begin(pod_uid)
        assert await made.done() == {pod_uid}


async def test_each_waits_for_its_own_and_who_shows_them_for_all() -> None:
    with waiting() as made:
        for number, uid in enumerate("ab", start=1):
            made.requests.add(uid, number)
        made.begin("a", "b", "other", None)
        assert await made.done() == {"other"}
        made.disk.writes(1)
        assert await made.done() == {"other", "a"}
        made.disk.writes(2)
        assert await made.done() == {"other", "a", "b", None}


async def test_everybody_waits_for_what_is_of_all() -> None:
    with waiting() as made:
        made.requests.add("a", 1)
        made.requests.add("", 2)
        made.begin("a", "other")
        made.disk.writes(1)
        assert not await made.done()
        made.disk.writes(2)
        assert await made.done() == {"a", "other"}


async def test_what_comes_meanwhile_has_to_be_there_as_well() -> None:
    with waiting() as made:
        made.requests.add("a", 1)
        made.begin("a", None)
        await made.done()
        made.requests.add("b", 2)
        made.disk.writes(1)
        assert await made.done() == {"a"}
        # and the next one of the same pod
        made.requests.add("b", 3)
        made.requests.add("a", 4)
        made.begin("a", "b")
        made.disk.writes(2)
        assert not await made.done()
        made.disk.writes(3)
        assert await made.done() == {"b"}
        made.disk.writes(4)
        assert await made.done() == {"a", "b", None}
