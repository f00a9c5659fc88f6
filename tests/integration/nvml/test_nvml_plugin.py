"""The nvml plugin as a whole: real pynvml in its own process on the fake NVML, our device manager behind the socket."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.plugins.nvml.boot_memory import Memory
from nodedevice_agent.plugins.nvml.node_gpus import Remembered

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


async def test_an_administrator_can_clear_a_gpu(t4: Node, tmp_path: Path) -> None:
    t4.gpus.xid(1, 48)
    await t4.until_unhealthy({1: "Xid48"})
    clear = tmp_path / "state/gpus/clear"
    clear.mkdir()
    (clear / t4.uuids[1]).touch()
    await t4.until(lambda r: r.available == 2)
    assert not list(clear.iterdir())


async def test_ecc_errors_while_the_agent_was_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_known, loop = asyncio.Event(), asyncio.get_running_loop()
    write = Memory.write

    def noted(its: Memory, remembered: tuple[Remembered, ...]) -> None:
        write(its, remembered)
        if [known.ecc_uncorrected for known in remembered] == [0, 0]:
            # from a thread
            loop.call_soon_threadsafe(is_known.set)

    monkeypatch.setattr(Memory, "write", noted)
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await asyncio.wait_for(is_known.wait(), 60)
    here.gpus.set(1, uncorrected_volatile=3)
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until_unhealthy({1: "EccUncorrectable"})


async def test_a_mark_survives_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until_unhealthy({1: "Xid48"})
    # reset while no process uses the GPU, as nvidia-smi requires
    here.gpus.reset(1)
    async with hosted(tmp_path) as manager, plugins(tmp_path):
        await Node(tmp_path, here.gpus, manager).until(lambda r: r.available == 2)


async def test_lost_and_removed_gpus_are_healthy_again_when_back(dgx: Node) -> None:
    dgx.gpus.lose(2)
    await dgx.until_unhealthy({2: "GpuLost"})
    dgx.gpus.remove(5)
    await dgx.until_unhealthy({2: "GpuLost", 5: "GpuGone"})
    dgx.gpus.add(2)
    dgx.gpus.add(5)
    await dgx.until(lambda r: r.available == 8)


async def test_prefers_gpus_that_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx1-v100", monkeypatch) as here:
        found = await here.until(lambda r: r.available == 8)
        ids = tuple(d.id for d in found.devices)
        connection = here.manager.host.newest(GPU, "GetPreferredAllocation")
        # on a DGX-1 the first GPU has two links to the fourth and the fifth, one to the second and the third
        (other,) = set(await connection.preferred(ids, (here.uuids[0],), 2)) - {here.uuids[0]}
        assert here.uuids.index(other) in {3, 4}
