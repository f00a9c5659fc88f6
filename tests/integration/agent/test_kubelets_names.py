"""A resource that moves between the kubelet's device manager and ours, in process, with the kubelet's files and a fake of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.nri_runtime import FakeRuntime
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/fake"
POD = Pod(
    "uid-1", "default", "train", (Container("main", limits={RESOURCE: 1}), Container("more", limits={RESOURCE: 1}))
)
SANDBOX = api_pb2.PodSandbox(
    id="s",
    name="train",
    namespace="default",
    uid="uid-1",
    annotations={"required-plugins.noderesource.dev": "[ nodedevice ]"},
)
CONTAINER = api_pb2.Container(id="c", pod_sandbox_id="s", name="main")


def kubelet_allocates(kubelet_dir: Path, *containers: str) -> None:
    """Its checkpoint has these containers of POD."""
    held = [Allocation(POD.uid, name, RESOURCE, {-1: (f"k-{name}",)}, b"") for name in containers]
    folder = kubelet_dir / "device-plugins"
    folder.mkdir(parents=True, exist_ok=True)
    written = folder / "written"
    written.write_text(encode(Checkpoint(tuple(held), {RESOURCE: ("k-main", "k-more")})))
    written.replace(folder / "kubelet_internal_checkpoint")


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        yield manager


@pytest.fixture
async def backend(manager: HostedManager) -> AsyncIterator[NriBackend]:
    folder = manager.folder
    settings = AgentSettings(nri_socket=str(folder / "nri.sock"), kubelet_dir=str(folder / "kubelet"))
    reader = reader_of(settings.kubelet_dir)
    backend = NriBackend(settings, manager.host, reader, lambda: None)
    async with background(backend.run()), background(reader.run()):
        yield backend


@pytest.fixture
async def plugin(manager: HostedManager) -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice()})
    await manager.register(plugin)
    yield plugin
    await plugin.stop()


@pytest.mark.parametrize(
    ("is_configured", "why"),
    [
        pytest.param(True, f"the device plugin of {RESOURCE} is not connected", id="a plugin of somebody's"),
        pytest.param(False, f"{RESOURCE} is not configured on this node any more", id="taken out of the configuration"),
    ],
)
async def test_the_kubelets_containers_start_after_the_plugin_left(
    manager: HostedManager, backend: NriBackend, plugin: FakePlugin, is_configured: bool, why: str
) -> None:
    async with FakeRuntime(manager.folder / "nri.sock") as runtime:
        connection = await runtime.plugin()
        await plugin.stop()
        await manager.until(lambda: not manager.manager.resources[RESOURCE].is_live)
        if not is_configured:
            manager.manager.resources[RESOURCE].presence.scope = f"built-in {RESOURCE}"
            manager.manager.table.configured(lambda name, scope: False, manager.host.now())
            manager.host.settle()
        manager.pods(POD)
        with pytest.raises(Exception, match=why):
            await connection.create_container(SANDBOX, CONTAINER)
        kubelet_allocates(manager.folder / "kubelet", "main", "more")
        assert await connection.create_container(SANDBOX, CONTAINER) == api_pb2.ContainerAdjustment()
        assert await connection.validate(SANDBOX, CONTAINER) == ""
        assert manager.manager.pending(RESOURCE) == []


async def test_after_a_restart_a_running_one_is_the_kubelets(
    manager: HostedManager, backend: NriBackend, plugin: FakePlugin
) -> None:
    """It has no mark of ours, and must not be reported as running without its device."""
    await plugin.stop()
    await manager.until(lambda: not manager.manager.resources[RESOURCE].is_live)
    kubelet_allocates(manager.folder / "kubelet", "main", "more")
    manager.pods(POD)
    backend.resource_changed(RESOURCE)
    assert not backend.not_injected(POD.uid, "main", RESOURCE), "what the kubelet has is not known yet"
    await manager.until(lambda: not manager.manager.pending(RESOURCE))
