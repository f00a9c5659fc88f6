"""The nvml plugin as a whole: real pynvml in its own process on the fake NVML, our device manager behind the socket."""

from pathlib import Path

import pytest
from nodedevice_agent.lib import filesystem

from tests.fakes.hosted_manager import hosted
from tests.integration.nvml.gpu_node import GPU, Node, node, plugins


async def test_lists_gpus_with_their_properties(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        found = await here.until(lambda r: r.healthy == 8)
        assert [d.id for d in found.devices] == sorted(here.uuids)
        first = here.device(0)
        assert dict(first.attributes) == {
            "model": "NVIDIA H100 80GB HBM3",
            "memoryBytes": "85017493504",
            "pciBusID": "0000:1b:00.0",
            "index": "0",
            "handOver": "env",
        }
        assert {d.numa_nodes for d in found.devices} == {(0,), (1,)}
        assert found.options.get_preferred_allocation_available


async def test_a_critical_xid_takes_a_gpu_out_until_it_was_reset(dgx: Node) -> None:
    dgx.gpus.xid(3, 79)
    await dgx.until_unhealthy({3: "Xid79"})
    assert "fallen off the bus" in dgx.device(3).message
    assert dgx.manager.available(GPU) == 7
    dgx.gpus.reset(3)
    await dgx.until(lambda r: r.available == 8)


async def test_a_mark_survives_a_restart_and_ends_with_the_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot_id = tmp_path / "boot_id"
    monkeypatch.setattr(filesystem, "BOOT_ID", boot_id)
    boot_id.write_text("first")
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until_unhealthy({1: "Xid48"})
    boot_id.write_text("second")
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until(lambda r: r.available == 2)
