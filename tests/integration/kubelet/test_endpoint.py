"""The agent as the kubelet's device plugin for each resource, against a minimal kubelet."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from msgspec import convert
from nodedevice_agent.kubelet.backend import MAX_LIST_BYTES, endpoint_name
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.names import Reason
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.device_manager import Manager
from tests.fakes.hosted_manager import Mirroring, mirroring
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.builtin_plugins.plugins import asking_for

GPU = "example.com/gpu"


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets lie below it."""
    return tmp_path_factory.mktemp("e")


@pytest.fixture
async def agent(folder: Path) -> AsyncIterator[Mirroring]:
    async with mirroring(folder) as found:
        found.pods()
        yield found


@pytest.fixture
async def kubelet(agent: Mirroring) -> AsyncIterator[Manager]:
    found = Manager(agent.kubelet_dir / "device-plugins")
    await found.start()
    yield found
    await found.stop()


@pytest.fixture
async def plugin(agent: Mirroring) -> AsyncIterator[FakePlugin]:
    """Registered with the agent; it prefers, and wants to be called before containers start."""
    devices = {f"d{index}": FakeDevice(numa_nodes=(0,)) for index in range(2)}
    found = FakePlugin(GPU, devices, pre_start_required=True, preferred_available=True)
    await agent.register(found)
    yield found
    await found.stop()


async def test_a_list_that_the_kubelet_would_not_take_is_not_sent(
    agent: Mirroring, kubelet: Manager, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kubelet.until_listed(GPU, ["d0", "d1"])
    size = api_pb2.ListAndWatchResponse(devices=kubelet.lists[GPU][-1]).ByteSize()
    monkeypatch.setattr("nodedevice_agent.kubelet.backend.MAX_LIST_BYTES", size)
    await plugin.update({f"d{index}": FakeDevice(numa_nodes=(0,)) for index in range(3)})
    reported = await agent.until_standing(GPU, Reason.KUBELET_LIST_TOO_BIG)
    assert reported.startswith("3 devices make a list of")
    await kubelet.until_hung_up()
    await plugin.update({f"d{index}": FakeDevice(numa_nodes=(0,)) for index in range(2)})
    await agent.until_standing(GPU, Reason.KUBELET_REGISTERED)
    assert MAX_LIST_BYTES == 4 * 1024 * 1024


async def test_nothing_of_the_kubelets_directory_is_touched(folder: Path, agent: Mirroring, kubelet: Manager) -> None:
    plugins = agent.kubelet_dir / "device-plugins"
    theirs = FakePlugin("vendor.com/nic", {"n0": FakeDevice()})
    await theirs.join(plugins)
    before = {path.name for path in plugins.iterdir()}
    ours = FakePlugin(GPU, {"d0": FakeDevice()})
    await agent.register(ours)
    await kubelet.until_listed(GPU, ["d0"])
    assert {path.name for path in plugins.iterdir()} == before | {endpoint_name(GPU)}
    assert list(agent.mirror.resources) == [GPU]
    await ours.stop()
    await theirs.stop()


class TestBuiltInPlugins:
    """Two serial lines of a made-up host, in two resources that name them differently."""

    SERIAL, LINES = "example.com/serial", "example.com/lines"

    @pytest.fixture
    def host(self, folder: Path) -> Path:
        root = folder / "h"
        for name in ("ttyUSB0", "ttyUSB1"):
            _plug(root, name)
        (root / "dev/serial/by-id").mkdir(parents=True)
        (root / "dev/serial/by-id/one").symlink_to("../../ttyUSB0")
        return root

    @pytest.fixture
    async def configured(self, agent: Mirroring, host: Path) -> Mirroring:
        groups = {
            self.LINES: [{"paths": [{"path": "/dev/serial/by-id/*"}]}],
            self.SERIAL: [{"paths": [{"path": "/dev/ttyUSB*"}]}],
        }
        generic = [{"resourceName": name, "groups": found} for name, found in groups.items()]
        agent.configure(convert({"generic": generic, "hostRoot": str(host)}, PluginSettings))
        resources = agent.mirror.resources
        await agent.until(lambda: all(name in resources and resources[name].is_live for name in groups))
        for name in groups:
            agent.cordon(name)
        return agent

    async def test_one_device_is_advertised_once(self, configured: Mirroring, kubelet: Manager) -> None:
        await kubelet.until_listed(self.LINES, {"serial-by-id-one-" + _digest("/dev/serial/by-id/one"): "Healthy"})
        await kubelet.until_listed(self.SERIAL, {"ttyUSB0": "Unhealthy", "ttyUSB1": "Healthy"})
        with pytest.raises(grpc.aio.AioRpcError, match=r"the same device as .* of example\.com/lines"):
            await kubelet.dial(self.SERIAL).Allocate(asking_for(["ttyUSB0"]))

    async def test_a_container_starts_only_while_its_answer_is_right(
        self, configured: Mirroring, kubelet: Manager, host: Path
    ) -> None:
        """The kubelet keeps the answer, and another device may have the name by then: asked before each start."""
        await kubelet.until_listed(self.SERIAL, {"ttyUSB0": "Unhealthy", "ttyUSB1": "Healthy"})
        assert kubelet.options[self.SERIAL].pre_start_required
        stub = kubelet.dial(self.SERIAL)
        await stub.Allocate(asking_for(["ttyUSB1"]))
        start = api_pb2.PreStartContainerRequest(devices_ids=["ttyUSB1"])
        await stub.PreStartContainer(start)
        (host / "dev/ttyUSB1").unlink()
        await kubelet.until_listed(self.SERIAL, {"ttyUSB0": "Unhealthy"})
        with pytest.raises(grpc.aio.AioRpcError, match=r"device ttyUSB1 of example\.com/serial is not there"):
            await stub.PreStartContainer(start)
        _plug(host, "ttyUSB1")
        await kubelet.until_listed(self.SERIAL, {"ttyUSB0": "Unhealthy", "ttyUSB1": "Healthy"})
        await stub.PreStartContainer(start)


def _plug(root: Path, name: str) -> None:
    """A device file that leads to /dev/null."""
    (root / "dev").mkdir(parents=True, exist_ok=True)
    (root / "dev" / name).symlink_to("/dev/null")


def _digest(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()[:8]
