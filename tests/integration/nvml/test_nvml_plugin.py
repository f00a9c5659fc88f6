"""The nvml plugin as a whole: real pynvml in its own process on the fake NVML, our device manager behind the socket."""

import asyncio
from pathlib import Path

import pytest
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
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


async def test_an_application_xid_takes_nothing_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "t4-pair", monkeypatch, harmlessXids=[74]) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(0, 31, times=10)
        here.gpus.xid(0, 74)
        # in order: when this one has been handled, so have the earlier ones
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})


async def test_an_administrator_can_clear_a_gpu(t4: Node, tmp_path: Path) -> None:
    t4.gpus.xid(1, 48)
    await t4.until_unhealthy({1: "Xid48"})
    clear = tmp_path / "state/gpus/clear"
    clear.mkdir()
    (clear / t4.uuids[1]).touch()
    await t4.until(lambda r: r.available == 2)
    assert not list(clear.iterdir())


async def test_an_invalid_clear_request_is_harmless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clear = tmp_path / "state/gpus/clear"
    (clear / "A-directory").mkdir(parents=True)
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        here.gpus.xid(1, 48)
        await here.until_unhealthy({1: "Xid48"})
        (clear / here.uuids[1]).touch()
        await here.until(lambda r: r.available == 2)
    messages = [record.message for record in caplog.records]
    assert messages.count("cannot remove the clear request; remove the file by hand") == 1


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


async def test_ecc_errors_and_requested_recovery_actions(dgx: Node) -> None:
    # after the first the driver requests nothing
    dgx.gpus.xid(0, 94)
    dgx.gpus.set(2, uncorrected_volatile=5)
    dgx.gpus.set(1, recovery_action=1)
    await dgx.until_unhealthy({1: "ResetRequired"})
    dgx.gpus.xid(3, 95)
    await dgx.until_unhealthy({1: "ResetRequired", 3: "ResetRequired"})
    dgx.gpus.reset(1)
    dgx.gpus.reset(3)
    await dgx.until(lambda r: r.available == 8)


async def test_ecc_errors_count_by_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch, eccErrors="unhealthy") as here:
        await here.until(lambda r: r.available == 8)
        here.gpus.xid(0, 94)
        await here.until_unhealthy({0: "EccUncorrectable"})
        here.gpus.reset(0)
        await here.until(lambda r: r.available == 8)


async def test_a_new_uuid_after_a_reset_is_a_new_device(t4: Node) -> None:
    t4.gpus.xid(1, 48)
    await t4.until_unhealthy({1: "Xid48"})
    t4.gpus.reset(1, uuid="GPU-00000000-1111-2222-3333-444444444444")
    found = await t4.until(lambda r: r.available == 2)
    assert [d.id for d in found.devices] == sorted([t4.uuids[0], "GPU-00000000-1111-2222-3333-444444444444"])


async def test_a_storm_of_xids_is_one_change(dgx: Node) -> None:
    before = len(dgx.manager.published)
    for _ in range(10):
        dgx.gpus.xid(3, 31, times=500)
        dgx.gpus.xid(3, 79, times=500)
    dgx.gpus.xid(7, 48)
    await dgx.until_unhealthy({3: "Xid79", 7: "Xid48"})
    assert len(dgx.manager.published) - before <= 2


async def test_sixteen_gpus_of_two_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "mixed-16", monkeypatch) as here:
        found = await here.until(lambda r: r.available == 16)
        models = {dict(d.attributes)["model"] for d in found.devices}
        assert len(models) == 2
    by_model = {sorted(models)[0]: "nvidia.com/other"}
    again = tmp_path / "again"
    async with hosted(again) as manager, plugins(again, modelResourceNames=by_model):
        await manager.until(lambda: manager.available(GPU) + manager.available("nvidia.com/other") == 16)
        assert manager.available("nvidia.com/other") > 0


async def test_what_a_container_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "host/dev").mkdir(parents=True)
    for name in ("nvidiactl", "nvidia-uvm", "nvidia1"):
        (tmp_path / "host/dev" / name).symlink_to("/dev/null")
    async with node(tmp_path, "t4-pair", monkeypatch, handOver=["env", "deviceNodes", "cdi"]) as here:
        await here.until(lambda r: r.available == 2)
        connection = here.manager.host.newest(GPU, "Allocate")
        answer = (await connection.allocate((here.uuids[1],))).edits
        assert answer.envs == {"NVIDIA_VISIBLE_DEVICES": here.uuids[1]}
        assert [d.host_path for d in answer.devices] == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/nvidia-uvm"]
        assert answer.cdi_devices == (f"nvidia.com/gpu={here.uuids[1]}",)
        assert (tmp_path / "plugins" / socket_name(GPU)).is_socket()


async def test_prefers_gpus_that_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx1-v100", monkeypatch) as here:
        found = await here.until(lambda r: r.available == 8)
        ids = tuple(d.id for d in found.devices)
        connection = here.manager.host.newest(GPU, "GetPreferredAllocation")
        # on a DGX-1 the first GPU has two links to the fourth and the fifth, one to the second and the third
        (other,) = set(await connection.preferred(ids, (here.uuids[0],), 2)) - {here.uuids[0]}
        assert here.uuids.index(other) in {3, 4}
