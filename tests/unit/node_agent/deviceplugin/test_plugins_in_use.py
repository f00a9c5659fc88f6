"""A device plugin as it is in use, played: Intel's GPU plugin."""

from pathlib import Path

from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import snapshot

from tests.fakes.hosted_manager import hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin

GPU = "gpu.intel.com/i915"


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
