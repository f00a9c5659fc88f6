"""An observer of DRA drivers beside an API server that has the slices a test gives it, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

from nodedevice_agent.dra.observer import DriverObserver
from nodedevice_agent.dra.served import WATCH, ServedByDrivers
from nodedevice_agent.dra.slices import RESOURCE, ResourceSliceObject
from nodedevice_agent.kube.informer import Watches
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.fakes.virtual_time import later
from tests.unit.node_agent.dra.published import KEY, NAME, NODE, FakeHeld, Json, published
from tests.unit.node_agent.kube.shown_status import MONDAY

FILE_NAME: Final = "dra-pools.json"


class Api:
    """An API server with these slices, and a Watches of it."""

    def __init__(self) -> None:
        self.cluster = self
        self.kinds = frozenset({RESOURCE.plural})
        self.slices: dict[str, ResourceSliceObject] = {}
        self.asked = 0
        self.fields: list[Mapping[str, str]] = []
        self.fails: Exception | None = None
        self.is_stale = False
        # drivers with slices that are not of one node, and those that were asked about
        self.beyond: set[str] = set()
        self.asked_beyond: list[str] = []
        self.handler: DriverObserver | None = None

    async def served(self, group_version: str) -> frozenset[str]:
        self.asked += 1
        assert group_version == "resource.k8s.io/v1"
        return self.kinds

    async def catch_up(self, kind: type, fields: Mapping[str, str]) -> str:
        if self.fails is not None:
            raise self.fails
        return "1"

    async def exists(self, kind: type, fields: Mapping[str, str]) -> bool:
        assert (kind, {*fields}, fields["spec.nodeName"]) == (ResourceSliceObject, {"spec.nodeName", "spec.driver"}, "")
        self.asked_beyond.append(fields["spec.driver"])
        if self.fails is not None:
            raise self.fails
        return fields["spec.driver"] in self.beyond

    async def follow(self, name: str, kind: type, fields: Mapping[str, str], handler: DriverObserver) -> None:
        assert (name, kind) == (WATCH, ResourceSliceObject)
        self.fields.append(fields)
        self.handler = handler
        handler.synced([*self.slices.values()], 1)
        try:
            await asyncio.Event().wait()
        finally:
            self.handler = None

    def stale(self) -> frozenset[str]:
        return frozenset({WATCH} if self.is_stale else ())


class Node:
    def __init__(
        self, folder: Path, known: Mapping[tuple[str, str], str] | None = None, *, is_off: bool = False
    ) -> None:
        self.api, self.held, self.file = Api(), FakeHeld(), folder / FILE_NAME
        self.published: list[str] = []
        # names that somebody else gives devices out by
        self.taken: set[str] = set()
        self.served = ServedByDrivers(NODE, self.held, self.taken.__contains__, known or {}, is_off=is_off)
        watches = cast(Watches, self.api)
        self.observer = DriverObserver(watches, NODE, self.served, self.published.append, self.file)

    @property
    def watch(self) -> DriverObserver:
        """What the API server's events go to."""
        assert self.api.handler is not None
        return self.api.handler

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.observer.run())
        await later(0.1)
        try:
            yield
        finally:
            assert not task.done(), task.exception()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def put(self, name: str, *devices: Json | str, **more: Any) -> None:
        found = published(name, devices, **more)
        self.api.slices[name] = found
        if self.api.handler is not None:
            self.api.handler.updated(found)
        await later(0.01)

    async def remove(self, name: str) -> None:
        self.watch.deleted(self.api.slices.pop(name))
        await later(0.01)

    def devices(self, key: tuple[str, str] = KEY) -> list[str]:
        pool = self.served.pools.get(key)
        return [*pool.devices] if pool is not None else []

    def status(self) -> NodeDeviceStatus:
        make = self.served.status_maker(NAME, NodeDeviceStatus(total=1), MONDAY, 0.0, is_watch_stale=False)
        assert make is not None
        return make.made()
