"""GPUs that several containers use: shares and units of memory, as a device manager gets them."""

from pathlib import Path

import grpc.aio
import pytest
from nodedevice_agent.plugins.nvml.parts import parents
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from hack.fake_nvml.library import FakeNvml
from tests.fakes.device_manager import Manager
from tests.fakes.hosted_manager import mirroring
from tests.integration.builtin_plugins.plugins import asking_for
from tests.integration.nvml.gpu_node import node, plugins

UNITS, SHARES = "aliyun.com/gpu-mem", "nvidia.com/gpu.shared"


async def test_gpus_are_whole_shared_and_in_units_beside_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [
        {"indexes": [0], "memory": {"unit": "4Gi"}},
        {"indexes": [1, 2], "shares": {"replicas": 4, "renameByDefault": True}},
    ]
    async with node(tmp_path, "dgx-h100", monkeypatch, sharing=rules) as here:
        await here.until(lambda r: r.healthy == 5)
        units = await here.until(lambda r: r.healthy == 19, "aliyun.com/gpu-mem")
        shares = await here.until(lambda r: r.healthy == 8, "nvidia.com/gpu.shared")
        assert not {d.id for d in units.devices} & {d.id for d in shares.devices}
        here.gpus.xid(0, 79)
        await here.until(lambda r: r.healthy == 0, "aliyun.com/gpu-mem")


async def test_units_of_one_gpu_where_the_kubelet_allocates(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It prefers them, and what it chooses otherwise is refused; it shows no container, so there is no directory."""
    # a short path: sockets lie below it
    folder = tmp_path_factory.mktemp("u")
    vgpu = folder / "host/usr/local/vgpu"
    vgpu.mkdir(parents=True)
    for name in ("libvgpu.so", "ld.so.preload"):
        (vgpu / name).touch()
    gpus = FakeNvml(folder / "nvml", "t4-pair")
    for name, value in gpus.environment().items():
        monkeypatch.setenv(name, value)
    (folder / "k/device-plugins").mkdir(parents=True)
    (folder / "plugins").symlink_to(folder / "p")
    kubelet = Manager(folder / "k/device-plugins")
    await kubelet.start()
    rules = [{"memory": {"limits": {"library": "/usr/local/vgpu/libvgpu.so"}}}]
    async with mirroring(folder) as agent, plugins(folder, sharing=rules):
        await agent.until(lambda: UNITS in agent.mirror.resources)
        agent.cordon(UNITS)
        await kubelet.until(lambda: len(kubelet.latest(UNITS) or ()) == 26)
        units = sorted(kubelet.latest(UNITS) or ())
        served = kubelet.dial(UNITS)
        # some of each
        wanted = api_pb2.ContainerPreferredAllocationRequest(available_deviceIDs=units[::2], allocation_size=5)
        preferred = await served.GetPreferredAllocation(
            api_pb2.PreferredAllocationRequest(container_requests=[wanted]), timeout=60
        )
        (chosen,) = (list(each.deviceIDs) for each in preferred.container_responses)
        assert (len(chosen), len(parents(chosen))) == (5, 1)
        (given,) = (await served.Allocate(asking_for(chosen), timeout=60)).container_responses
        assert given.envs["CUDA_DEVICE_MEMORY_LIMIT_0"] == "5120m"
        assert "/tmp/vgpu" not in {mount.container_path for mount in given.mounts}
        assert not (vgpu / "containers").exists()
        with pytest.raises(grpc.aio.AioRpcError, match="of one GPU, and these are"):
            await served.Allocate(asking_for([units[0], units[-1]]), timeout=60)
        await agent.until(lambda: "a kubelet allocates" in agent.snapshot(UNITS).plugin_message)
    await kubelet.stop()
