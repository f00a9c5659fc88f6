"""A cluster of one NodeDevice, its watch, and an agent that writes its status, for tests in virtual time.

from tests.unit.node_agent.kube.one_object import cluster as cluster
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.nodedevice import NodeDeviceSync
from nodedevice_agent.kube.objects import NodeDeviceObject, OwnedMetadata
from nodedevice_kube.api_errors import Unavailable

from tests.fakes.background import background
from tests.unit.node_agent.kube.status_source import FixedStatus

GPU = "example.com/gpu"
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 3600.0
OWNED = OwnedMetadata(ownerReferences=[{"kind": "Node", "name": "n1"}])
OTHER = NodeDeviceObject(metadata=OWNED, status={"total": 7, "conditions": []})


class FakeCluster:
    """One object and its watch. `fails`: raised by every write."""

    def __init__(self) -> None:
        self.found: NodeDeviceObject | None = OTHER
        self.fails: Exception | None = None
        # another client writes after each write
        self.is_contested = False
        self.attempts = 0
        self.node = "uid"
        self._events: asyncio.Queue[str | Exception] = asyncio.Queue()
        self._attempted = asyncio.Condition()

    async def list(
        self, kind: type[Any], fields: Mapping[str, str], keep: Any = None
    ) -> tuple[list[NodeDeviceObject], str]:
        return [self.found] if self.found else [], "1"

    @asynccontextmanager
    async def watch(
        self, kind: type[Any], fields: Mapping[str, str], version: str, seconds: int, reading: Any = None
    ) -> AsyncIterator[AsyncIterator[tuple[str, NodeDeviceObject]]]:
        yield self._events_of_watch()

    async def _events_of_watch(self) -> AsyncIterator[tuple[str, NodeDeviceObject]]:
        while True:
            match await self._events.get():
                case Exception() as lost:
                    raise lost
                case event:
                    yield event, self.found or OTHER

    async def catch_up(self, kind: type[Any], fields: Mapping[str, str]) -> str:
        return "1"

    async def node_uid(self, name: str) -> str:
        return self.node

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        await self._attempt()
        self.found = NodeDeviceObject(metadata=OWNED)
        return self.found

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        await self._attempt()
        written = self.found = NodeDeviceObject(metadata=OWNED, status=status)
        if self.is_contested:
            self.found = OTHER
            self._events.put_nowait("MODIFIED")
        return written

    async def _attempt(self) -> None:
        async with self._attempted:
            self.attempts += 1
            self._attempted.notify_all()
        if self.fails is not None:
            raise self.fails

    async def until_attempts(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._attempted:
            await self._attempted.wait_for(lambda: self.attempts >= count)

    def delete(self) -> None:
        self.found = None
        self._events.put_nowait("DELETED")

    def lose_watch(self) -> None:
        self._events.put_nowait(Unavailable("watching", "x", "connection lost"))


@asynccontextmanager
async def published(cluster: FakeCluster) -> AsyncIterator[NodeDeviceSync]:
    made = NodeDeviceSync(FixedStatus(cast(KubeClient, cluster), total=1), GPU)
    made.touch()
    async with background(made.run()):
        yield made


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()
