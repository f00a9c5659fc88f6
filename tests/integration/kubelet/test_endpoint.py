"""The agent as the kubelet's device plugin for each resource, against a minimal kubelet."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import grpc.aio
import pytest
from msgspec import convert
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kubelet.backend import MAX_LIST_BYTES, endpoint_name
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.names import Reason
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.device_manager import Manager
from tests.fakes.hosted_manager import Mirroring, mirroring
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure

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


async def test_the_kubelet_reports_a_plugins_failure(agent: Mirroring, kubelet: Manager, plugin: FakePlugin) -> None:
    await kubelet.until_listed(GPU, ["d0", "d1"])
    stub = kubelet.dial(GPU)
    plugin.knobs.pre_start_error = RpcFailure(grpc.StatusCode.INTERNAL, "no reset")
    with pytest.raises(grpc.aio.AioRpcError, match="no reset"):
        await stub.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=["d0"]))
    # advice that fails is done without: an error would fail the pod
    plugin.knobs.preferred_error = RpcFailure(grpc.StatusCode.INTERNAL, "no advice")
    asked = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=["d0", "d1"], allocation_size=1)
    preferred = await stub.GetPreferredAllocation(api_pb2.PreferredAllocationRequest(container_requests=[asked]))
    assert list(preferred.container_responses[0].deviceIDs) == ["d0"]
    await plugin.stop()
    await kubelet.until_listed(GPU, {"d0": "Unhealthy", "d1": "Unhealthy"})
    wanted = api_pb2.ContainerAllocateRequest(devices_ids=["d0"])
    with pytest.raises(grpc.aio.AioRpcError, match="it is no longer connected"):
        await stub.Allocate(api_pb2.AllocateRequest(container_requests=[wanted]))


async def test_a_refusal_is_shown_in_the_kubelets_words_and_tried_again(agent: Mirroring, plugin: FakePlugin) -> None:
    kubelet = Manager(agent.kubelet_dir / "device-plugins")
    kubelet.refuse = "the requested resource is not wanted here"
    await kubelet.start()
    reported = await agent.until_standing(GPU, Reason.KUBELET_REFUSED)
    assert "INVALID_ARGUMENT: the requested resource is not wanted here" in reported
    kubelet.refuse = ""
    await kubelet.until_listed(GPU, ["d0", "d1"])
    await agent.until_standing(GPU, Reason.KUBELET_REGISTERED)
    await kubelet.stop()


async def test_a_quick_restart_of_the_kubelet_is_not_reported(folder: Path) -> None:
    async with mirroring(folder, grace_seconds=60) as agent:
        agent.pods()
        kubelet = Manager(agent.kubelet_dir / "device-plugins")
        await kubelet.start()
        plugin = FakePlugin(GPU, {"d0": FakeDevice()})
        await agent.register(plugin)
        await agent.until_standing(GPU, Reason.KUBELET_REGISTERED)
        agent.standings.clear()
        await kubelet.stop()
        kubelet.wipe()
        kubelet.lists.clear()
        await kubelet.start()
        await kubelet.until_listed(GPU, ["d0"])
        # what is reported after that was reported after the return
        await plugin.stop()
        await kubelet.until_listed(GPU, {"d0": "Unhealthy"})
        agent.mirror.tick(agent.host.now() + STOP_GRACE_PERIOD_SECONDS)
        agent.host.settle()
        await kubelet.until_hung_up()
        assert agent.standings == [Reason.NOTHING_FOR_KUBELET]
        await kubelet.stop()


async def test_changed_options_cause_a_new_registration(agent: Mirroring, kubelet: Manager, plugin: FakePlugin) -> None:
    await kubelet.until_listed(GPU, ["d0", "d1"])
    await plugin.stop()
    other = FakePlugin(GPU, {"d0": FakeDevice()})
    await other.join(agent.plugin_dir)
    await kubelet.until(lambda: not kubelet.options[GPU].pre_start_required)
    await kubelet.until_listed(GPU, ["d0"])
    await other.stop()


async def test_a_plugin_gone_for_good_is_withdrawn(agent: Mirroring, kubelet: Manager, plugin: FakePlugin) -> None:
    await kubelet.until_listed(GPU, ["d0", "d1"])
    await plugin.stop()
    await kubelet.until_listed(GPU, {"d0": "Unhealthy", "d1": "Unhealthy"})
    agent.mirror.tick(agent.host.now() + STOP_GRACE_PERIOD_SECONDS)
    agent.host.settle()
    await kubelet.until_hung_up()
    assert not (agent.kubelet_dir / "device-plugins" / endpoint_name(GPU)).exists()
    assert agent.injectable(GPU)[1] == Reason.NOTHING_FOR_KUBELET
    assert agent.mirror.forget(GPU)
    agent.backend.resource_forgotten(GPU)
    await agent.register(plugin)
    await kubelet.until_listed(GPU, ["d0", "d1"])


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


async def test_a_socket_that_cannot_be_served_is_reported_and_retried(agent: Mirroring, kubelet: Manager) -> None:
    in_the_way = agent.kubelet_dir / "device-plugins" / endpoint_name(GPU)
    in_the_way.mkdir()
    plugin = FakePlugin(GPU, {"d0": FakeDevice()})
    await agent.register(plugin)
    reported = await agent.until_standing(GPU, Reason.KUBELET_CANNOT_SERVE)
    assert f"cannot move the new socket to {in_the_way}: Is a directory" in reported
    assert {path.name for path in in_the_way.parent.iterdir()} == {in_the_way.name, "kubelet.sock"}
    in_the_way.rmdir()
    await kubelet.until_listed(GPU, ["d0"])
    await agent.until_standing(GPU, Reason.KUBELET_REGISTERED)
    await plugin.stop()


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


def test_our_plugin_directory_is_not_the_kubelets(tmp_path: Path) -> None:
    (tmp_path / "device-plugins").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "device-plugins")
    for plugin_dir in (tmp_path / "device-plugins", tmp_path / "link"):
        with pytest.raises(AgentSettingsError, match="is the kubelet's plugin directory"):
            KubeletDirectory(tmp_path).refuse_as_own(plugin_dir)
    KubeletDirectory(tmp_path).refuse_as_own(tmp_path / "p")


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
        wanted = api_pb2.ContainerAllocateRequest(devices_ids=["ttyUSB0"])
        with pytest.raises(grpc.aio.AioRpcError, match=r"the same device as .* of example\.com/lines"):
            await kubelet.dial(self.SERIAL).Allocate(api_pb2.AllocateRequest(container_requests=[wanted]))

    async def test_a_container_starts_only_while_its_answer_is_right(
        self, configured: Mirroring, kubelet: Manager, host: Path
    ) -> None:
        """The kubelet keeps the answer, and another device may have the name by then: asked before each start."""
        await kubelet.until_listed(self.SERIAL, {"ttyUSB0": "Unhealthy", "ttyUSB1": "Healthy"})
        assert kubelet.options[self.SERIAL].pre_start_required
        stub = kubelet.dial(self.SERIAL)
        wanted = api_pb2.ContainerAllocateRequest(devices_ids=["ttyUSB1"])
        await stub.Allocate(api_pb2.AllocateRequest(container_requests=[wanted]))
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
