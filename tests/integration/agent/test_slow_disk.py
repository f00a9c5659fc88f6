"""Through NRI, in process: what changes while the creation of a container waits for the disk."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.durable_requests import DurableRequests
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.runtime import RunningContainer, Sandbox
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings

from tests.fakes.hosted_manager import hosted
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/fake"
ONE, OTHER = (Pod(f"uid-{n}", "default", n, (Container("main", limits={RESOURCE: 1}),)) for n in ("one", "other"))


async def test_a_device_that_another_pod_got_is_not_injected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, is_asked = asyncio.Event(), asyncio.Event()

    async def saved(requests: DurableRequests, pod_uid: str | None = None) -> None:
        is_asked.set()
        await disk.wait()

    monkeypatch.setattr(DurableRequests, "saved", saved)
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice()})
    settings = AgentSettings(nri_socket=str(tmp_path / "nri.sock"), kubelet_dir=str(tmp_path / "kubelet"))
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        manager.manager.containers.synchronized(())
        await manager.register(plugin)
        manager.pods(ONE)
        use = manager.manager.resources[RESOURCE].use
        await manager.until(lambda: dict(use.holders) == {"a": ONE.uid})
        backend = NriBackend(settings, manager.host, reader_of(settings.kubelet_dir), lambda: None)
        sandbox, container = Sandbox("s", ONE.name, ONE.namespace, ONE.uid), RunningContainer("c", "s", "main")
        creation = asyncio.create_task(backend.create_container(sandbox, container))
        await is_asked.wait()
        manager.pods(OTHER)
        try:
            await manager.until(lambda: dict(use.holders) == {"a": OTHER.uid})
        finally:
            disk.set()
        edits = await creation
    await plugin.stop()
    # nothing requires this plugin for the sandbox, and its pod is gone
    assert edits is None
    assert manager.manager.containers.find(ONE.uid, "c") is None
