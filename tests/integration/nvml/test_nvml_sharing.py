"""GPUs that several containers use: shares and units of memory, as a device manager gets them."""

from pathlib import Path

import pytest
from nodedevice_agent.errors import PluginFailed
from nodedevice_api.parts import Placement, part_id

from tests.integration.nvml.gpu_node import node

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


async def test_four_shares_as_nvidias_plugin_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shares = {"replicas": 4, "renameByDefault": True, "failRequestsGreaterThanOne": True}
    async with node(tmp_path, "t4-pair", monkeypatch, sharing=[{"shares": shares}]) as here:
        await here.until(lambda r: r.available == 8, SHARES)
        assert here.resource() is None
        one, other = (part_id(uuid, 3) for uuid in here.uuids)
        connection = here.manager.host.newest(SHARES, "Allocate")
        answer = (await connection.allocate((one,))).edits
        assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": here.uuids[0]}
        with pytest.raises(PluginFailed, match="maximum request size for shared resources is 1; found 2"):
            await connection.allocate((one, other))


async def test_units_of_one_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, sharing=[{"memory": {}}]) as here:
        await here.until(lambda r: r.available == 30, UNITS)
        rules = here.manager.manager.resources[UNITS].listed.part_rules
        assert rules is not None
        assert rules.placement is Placement.SAME_PARENT
        connection = here.manager.host.newest(UNITS, "Allocate")
        one, other = ([part_id(uuid, number) for number in range(2)] for uuid in here.uuids)
        assert (await connection.allocate(tuple(one))).edits.envs["NVIDIA_VISIBLE_DEVICES"] == here.uuids[0]
        with pytest.raises(PluginFailed, match="units of one container have to be of one GPU"):
            await connection.allocate((*one, *other))


async def test_a_unit_larger_than_the_gpu_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, sharing=[{"memory": {"unit": "16Gi"}}]) as here:
        found = await here.until(lambda r: bool(r.plugin_message), UNITS)
        assert found.total == 0
        assert all(f"GPU {uuid} (Tesla T4)" in found.plugin_message for uuid in here.uuids)
