"""Records when a Node showed a value: a watch of all Nodes that keeps only numbers and times.

Independent of the operator, which it judges.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from typing import Self

import msgspec

from hack.bench.operator.api import Api
from hack.bench.operator.fleet import RESOURCES
from hack.bench.operator.generator import NODES, Change

_POLL_SECONDS = 0.1
# Nodes that show the right numbers, and nothing new for this long, are final.
_CALM_SECONDS = 5.0


class _Metadata(msgspec.Struct):
    name: str = ""


class _Status(msgspec.Struct):
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _Event(msgspec.Struct):
    type: str
    object: _Node


class NodeObserver:
    """Use it as a context manager inside a running event loop."""

    def __init__(self, api: Api, verify: Callable[[], None]) -> None:
        """verify: raises if waiting is pointless."""
        self._api = api
        self._verify = verify
        self._shown: dict[tuple[str, str], tuple[str | None, str | None]] = {}
        self._since: dict[tuple[str, str, int], list[float]] = {}
        self._received_at = time.monotonic()
        self._task: asyncio.Task[None] | None = None

    async def wait_all(self, wanted: Mapping[tuple[str, str], int], timeout_seconds: float) -> float:
        """Wait until capacity and allocatable are these numbers, by node and resource; the moment. Raises TimeoutError."""
        return await self._wait(lambda: self._are_right(wanted), timeout_seconds)

    async def wait_changes(self, changes: list[Change], timeout_seconds: float) -> list[float | None]:
        """Seconds from each change's sending until the Node showed it; None if the next change came first.

        That happens if a device fails and recovers before the Node has shown either.
        Raises TimeoutError if the last change of a resource is not shown in time.
        """
        following: dict[tuple[str, str], float] = {}
        until = []
        for change in reversed(changes):
            until.append(following.get((change.node, change.resource), math.inf))
            following[change.node, change.resource] = change.sent_at
        until.reverse()
        last = [change for change, end in zip(changes, until, strict=True) if end == math.inf]
        wanted = {(change.node, change.resource): change.number for change in last}

        def is_over() -> bool:
            if all(self._seconds(change, math.inf) is not None for change in last):
                return True
            return time.monotonic() > self._received_at + _CALM_SECONDS and self._are_right(wanted)

        await self._wait(is_over, timeout_seconds)
        return [self._seconds(change, end) for change, end in zip(changes, until, strict=True)]

    def _seconds(self, change: Change, until: float) -> float | None:
        moments = self._since.get((change.node, change.resource, change.number), [])
        return next((moment - change.sent_at for moment in moments if change.sent_at <= moment < until), None)

    def _are_right(self, wanted: Mapping[tuple[str, str], int]) -> bool:
        return all(self._shown.get(key) == (str(number), str(number)) for key, number in wanted.items())

    async def _wait(self, is_so: Callable[[], bool], timeout_seconds: float) -> float:
        async with asyncio.timeout(timeout_seconds):
            while not is_so():
                self._verify()
                self._verify_watch()
                # all of a burst at once: checking thousands of Nodes for each event would cost more than the events
                await asyncio.sleep(_POLL_SECONDS)
        return max((moments[-1] for moments in self._since.values() if moments), default=time.monotonic())

    def _verify_watch(self) -> None:
        """Raise the error that ended the watch: without a watch, no change would show."""
        assert self._task is not None
        if self._task.done():
            self._task.result()

    async def _watch(self) -> None:
        query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        # the API server ends a watch whose reader is too slow, as on a busy machine
        while True:
            async for event in self._api.watch(NODES, _Event, query):
                self._take_in(event.object, time.monotonic())

    def _take_in(self, node: _Node, now: float) -> None:
        for resource in RESOURCES:
            numbers = node.status.capacity.get(resource), node.status.allocatable.get(resource)
            key = node.metadata.name, resource
            if numbers != self._shown.get(key, (None, None)) and numbers[0] is not None:
                self._since.setdefault((*key, int(numbers[0])), []).append(now)
                self._received_at = now
            self._shown[key] = numbers

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
