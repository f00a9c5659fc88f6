"""Through NRI, in process: what changes while the creation of a container waits for the disk."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.durable_requests import DurableRequests
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.runtime import backend as nri_backend
from nodedevice_agent.runtime.backend import NriBackend

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.agent.injecting_agent import POD, RESOURCE, backend_of, holders, with_pod


class SlowDisk:
    """Holds up every wait for the disk until `is_done`; `waits` is set once something waits."""

    def __init__(self) -> None:
        self.waits, self.is_done = asyncio.Event(), asyncio.Event()

    async def saved(self) -> None:
        self.waits.set()
        await self.is_done.wait()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    monkeypatch.setattr(nri_backend, "WAIT_SECONDS", 30.0)
    disk = SlowDisk()
    monkeypatch.setattr(DurableRequests, "saved", lambda requests, pod_uid: disk.saved())
    return disk


@asynccontextmanager
async def creating(
    manager: HostedManager, plugin: FakePlugin, disk: SlowDisk
) -> AsyncIterator[tuple[NriBackend, asyncio.Task[ContainerEdits | None]]]:
    """A container of POD whose creation waits for the disk; the wait ends with the block."""
    await manager.register(plugin)
    await with_pod(manager)
    handler = backend_of(manager, manager.folder)
    asked = Sandbox("s", POD.name, POD.namespace, POD.uid), RunningContainer("c", "s", "main")
    task = asyncio.create_task(handler.create_container(*asked))
    await disk.waits.wait()
    yield handler, task
    disk.is_done.set()
    await asyncio.wait([task])


async def test_a_device_another_pod_got_is_not_injected(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        manager.manager.containers.synchronized(())
        async with creating(manager, plugin, disk) as (_, creation):
            manager.pods(Pod("uid-2", "default", "next", POD.containers))
            await manager.until(lambda: holders(manager) == {"a": "uid-2"})
        # nothing requires this plugin for the sandbox, and its pod is gone: nothing is injected
        assert creation.result() is None
        assert manager.manager.containers.find(POD.uid, "c") is None


async def test_a_change_during_the_wait_is_injected(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        manager.manager.containers.synchronized(())
        async with creating(manager, plugin, disk) as (_, creation):
            manager.pods()
            await plugin.update({"b": FakeDevice()})
            await manager.until(lambda: set(manager.manager.resources[RESOURCE].devices) == {"b"})
            manager.pods(POD)
            await manager.until(lambda: holders(manager) == {"b": POD.uid})
        edits = creation.result()
        assert edits is not None
        assert edits.envs == {"IDS": "b"}


async def test_a_pod_that_ends_during_the_wait_is_refused(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager, creating(manager, plugin, disk) as (_, creation):
        # the runtime has not been synchronized, so the devices are not free yet
        manager.pods()
        assert holders(manager) == {"a": POD.uid}
        disk.is_done.set()
        with pytest.raises(InjectionRefused, match="is over"):
            await creation
