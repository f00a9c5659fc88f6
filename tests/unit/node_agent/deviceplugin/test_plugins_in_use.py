"""Device plugins as they are in use, played: Intel's GPU plugin and ROCm's."""

from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.deviceplugin import redial

from tests.fakes.background import background
from tests.fakes.hosted_manager import hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin

GPU = "gpu.intel.com/i915"
ROCM = "amd.com/gpu"


async def test_intels_gpu_plugin_registers_with_an_empty_list(tmp_path: Path) -> None:
    """It sends its devices when it has scanned them: a pod waits for them, and none is freed by a restart of the plugin."""
    devices = {f"card{n}-{m}": FakeDevice(numa_nodes=(n,)) for n in range(2) for m in range(3)}
    plugin = FakePlugin(GPU, {})
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)
        manager.pod_seen(pod("one", GPU, 1))
        (waiting,) = snapshot(manager.manager, GPU).pending
        assert waiting.pending.reason == "NotEnoughDevices"
        await plugin.update(devices)
        await manager.until(lambda: manager.available(GPU) == 5)
        plugin.devices = {}
        await plugin.stop()
        await manager.until(lambda: snapshot(manager.manager, GPU).state is EndpointState.STOPPED)
        await plugin.join(manager.plugin_dir)
        await manager.until(lambda: snapshot(manager.manager, GPU).state is EndpointState.RUNNING)
        now = snapshot(manager.manager, GPU)
        assert (now.allocated, now.available) == (1, 0)
        await plugin.update(devices)
        await manager.until(lambda: manager.available(GPU) == 5)
        await plugin.stop()


class TestROCmDevicePlugin:
    """It ends when a stream of it ends, and its DaemonSet starts it again."""

    @pytest.fixture(autouse=True)
    def _at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(redial, "REDIAL_SECONDS", 0.0)

    async def _live(self, plugin: FakePlugin, plugin_dir: Path) -> None:
        while True:
            await plugin.join(plugin_dir)
            await plugin.wait_for_streams(1)
            await plugin.wait_for_streams(0)
            await plugin.stop()

    async def test_it_comes_back_and_pods_keep_their_devices(self, tmp_path: Path) -> None:
        plugin = FakePlugin(ROCM, {f"0000:{n:02x}:00.0": FakeDevice() for n in range(8)})
        async with hosted(tmp_path) as manager, background(self._live(plugin, manager.plugin_dir)):
            await manager.until(lambda: manager.available(ROCM) == 8)
            manager.pod_seen(pod("one", ROCM, 2))
            await manager.until(lambda: manager.available(ROCM) == 6)
            held = manager.manager.book.of_pod("one")
            for number in (2, 3, 4):
                await plugin.end_streams()
                await plugin.wait_for_calls("ListAndWatch", number)
                await manager.until(lambda: manager.available(ROCM) == 6)
            assert manager.manager.book.of_pod("one") == held
            assert (len(plugin.calls_of("Allocate")), snapshot(manager.manager, ROCM).healthy) == (1, 8)
        await plugin.stop()
