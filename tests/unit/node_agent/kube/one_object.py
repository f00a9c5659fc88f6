"""A cluster of NodeDevices, their watches, and an agent that writes the status of one, for tests in virtual time.

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
from nodedevice_api.names import node_device_name
from nodedevice_kube.api_errors import NotFound, Unavailable

from tests.fakes.background import background
from tests.unit.node_agent.kube.status_source import FixedStatus

GPU = "example.com/gpu"
NAME = node_device_name("n1", GPU)
# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 3600.0
OWNER = {"kind": "Node", "name": "n1"}
OTHER = NodeDeviceObject(metadata=OwnedMetadata(ownerReferences=[OWNER]), status={"total": 7, "conditions": []})


class FakeCluster:
    """NodeDevices by name. Each event of a watch is of the one of GPU.

    fails, list_fails: raised by every write, by every list. is_up: lists get a response. missing: of how many writes the object is
    gone when they come. is_contested: another client writes after each write. reads: lists and watches, by verb and name. writes:
    those of the agent. open: names of watches that are.
    """

    def __init__(self, found: NodeDeviceObject | None = OTHER) -> None:
        self.objects = {} if found is None else {NAME: found}
        self.version = 49
        self.fails: Exception | None = None
        self.list_fails: Exception | None = None
        self.is_up = asyncio.Event()
        self.is_up.set()
        self.missing = 0
        self.is_contested = False
        self.node = "uid"
        self.reads: list[tuple[str, str]] = []
        self.writes: list[tuple[Any, ...]] = []
        self.open: set[str] = set()
        self._events: asyncio.Queue[str | Exception] = asyncio.Queue()
        self._attempted = asyncio.Condition()

    @property
    def found(self) -> NodeDeviceObject | None:
        return self.objects.get(NAME)

    @property
    def attempts(self) -> int:
        return len(self.writes)

    def write(self, name: str, status: dict[str, Any] | None = None, **spec: Any) -> NodeDeviceObject:
        """Without a status it keeps that of before."""
        self.version += 1
        version, before = str(self.version), self.objects.get(name, NodeDeviceObject())
        metadata = OwnedMetadata(name=name, uid="u", resourceVersion=version, ownerReferences=[OWNER])
        status = before.status if status is None else status
        self.objects[name] = NodeDeviceObject(metadata=metadata, spec=spec, status=status)
        return self.objects[name]

    async def list(
        self, kind: type[Any], fields: Mapping[str, str], keep: Any = None
    ) -> tuple[list[NodeDeviceObject], str]:
        name = fields["metadata.name"]
        self.reads.append(("list", name))
        await self.is_up.wait()
        if self.list_fails:
            raise self.list_fails
        return [self.objects[name]] if name in self.objects else [], str(self.version)

    @asynccontextmanager
    async def watch(
        self, kind: type[Any], fields: Mapping[str, str], version: str, seconds: int, reading: Any = None
    ) -> AsyncIterator[AsyncIterator[tuple[str, NodeDeviceObject]]]:
        name = fields["metadata.name"]
        self.reads.append(("watch", name))
        self.open.add(name)
        try:
            yield self._events_of_watch()
        finally:
            self.open.remove(name)

    async def _events_of_watch(self) -> AsyncIterator[tuple[str, NodeDeviceObject]]:
        while True:
            match await self._events.get():
                case Exception() as lost:
                    raise lost
                case event:
                    yield event, self.found or OTHER

    async def catch_up(self, kind: type[Any], fields: Mapping[str, str]) -> str:
        return str(self.version)

    async def node_uid(self, name: str) -> str:
        return self.node

    async def create_node_device(self, node: tuple[str, str], resource_name: str) -> NodeDeviceObject:
        await self._attempt("create", node, resource_name)
        return self.write(node_device_name(node[0], resource_name))

    async def apply_status(self, name: str, status: dict[str, Any]) -> NodeDeviceObject:
        await self._attempt("status", name, status["total"])
        if self.missing:
            self.missing -= 1
            raise NotFound("writing", "x", "no such object", 404)
        written = self.write(name, status, **self.objects[name].spec)
        if self.is_contested:
            self.write(name, OTHER.status)
            self._events.put_nowait("MODIFIED")
        return written

    async def _attempt(self, *request: Any) -> None:
        async with self._attempted:
            self.writes.append(request)
            self._attempted.notify_all()
        if self.fails is not None:
            raise self.fails

    async def until_attempts(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS), self._attempted:
            await self._attempted.wait_for(lambda: self.attempts >= count)

    def delete(self) -> None:
        del self.objects[NAME]
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
