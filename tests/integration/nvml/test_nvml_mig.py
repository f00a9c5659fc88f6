"""GPUs in MIG mode: their instances are listed and followed while they come and go."""

from pathlib import Path

import pytest
from nodedevice_agent.errors import PluginFailed

from tests.integration.nvml.gpu_node import node

ONE, TWO, THREE = (f"nvidia.com/mig-{profile}" for profile in ("1g.10gb", "2g.20gb", "3g.40gb"))


async def test_instances_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "mig-a100", monkeypatch, mig="mixed") as here:
        await here.until(lambda r: [d.id for d in r.devices] == here.uuids[2:3])
        # instances of one GPU are of several resources, and all can be used at the same time
        ones = await here.until(lambda r: r.available == 8, ONE)
        await here.until(lambda r: r.available == 1, TWO)
        await here.until(lambda r: r.available == 1, THREE)
        attributes = dict(ones.devices[0].attributes)
        assert attributes["profile"] == "1g.10gb"
        assert attributes["memoryBytes"] == str(9856 << 20)
        assert all(d.id.startswith("MIG-") for d in ones.devices)
        # an event shows the change, far before the next poll would
        here.gpus.destroy(1)
        await here.until(lambda r: r.healthy == 1, ONE)
        here.gpus.create(1, "1g.10gb+me")
        here.gpus.create(1, "2g.20gb", compute="1,1")
        await here.until(lambda r: r.healthy == 1, f"{ONE}.me")
        await here.until(lambda r: r.healthy == 2, "nvidia.com/mig-1c.2g.20gb")
        here.gpus.mig(0, "disabled")
        await here.until(lambda r: sorted(d.id for d in r.devices if d.healthy) == sorted(here.uuids[::2]))
        await here.until(lambda r: r.healthy == 0, TWO)


async def test_an_instance_is_handed_over_with_its_capabilities(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minors = tmp_path / "host/proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia1", "nvidia-caps/nvidia-cap66", "nvidia-caps/nvidia-cap67"):
        (tmp_path / "host/dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "host/dev" / name).symlink_to("/dev/null")
    minors.write_text("config 1\nmonitor 2\ngpu1/gi7/access 66\ngpu1/gi7/ci0/access 67\n")
    async with node(tmp_path, "mig-a100", monkeypatch, mig="mixed", handOver=["env", "deviceNodes"]) as here:
        ones = await here.until(lambda r: r.healthy == 8, ONE)
        (held,) = (d.id for d in ones.devices if {("gpuInstance", "7"), ("index", "1")} <= set(d.attributes))
        connection = here.manager.host.newest(ONE, "Allocate")
        answer = (await connection.allocate((held,))).edits
        assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": held}
        capabilities = ["/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67"]
        files = ["/dev/nvidia1", *capabilities, "/dev/nvidiactl", "/dev/nvidia-uvm"]
        assert [d.host_path for d in answer.devices] == files
        other = next(d.id for d in ones.devices if d.id != held)
        with pytest.raises(PluginFailed, match=f"no device files for instance {other}"):
            await connection.allocate((other,))
