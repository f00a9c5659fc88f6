"""A device plugin with `allocateRetry: never`: the call is on disk before the plugin gets it, so that no start repeats it."""

from collections.abc import Sequence
from pathlib import Path

from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.hosted_manager import hosted, pod
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/vgpu"


async def test_a_call_is_on_disk_when_the_plugin_gets_it(tmp_path: Path) -> None:
    on_disk: list[tuple[AllocationKey, ...]] = []

    def answer(device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        found = checkpoint_file.read(tmp_path)
        on_disk.append(() if found is None else found.allocate_calls)
        return api_pb2.ContainerAllocateResponse()

    plugin = FakePlugin(RESOURCE, {"d0": FakeDevice()})
    plugin.knobs.allocate_answer = answer
    async with hosted(tmp_path, allocate_retry={"*": "never"}) as manager:
        await manager.register(plugin)
        manager.pod_seen(pod("train", RESOURCE, 1))
        await manager.until(lambda: "train" in manager.manager.book.by_pod)
    await plugin.stop()
    assert [{key[0] for key in calls} for calls in on_disk] == [{"train"}]
