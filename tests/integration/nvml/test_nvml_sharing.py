"""GPUs that several containers use: shares and units of memory, as a device manager gets them."""

from pathlib import Path

import pytest

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
