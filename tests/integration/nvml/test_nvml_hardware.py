"""GPUs as hardware has them: what the driver knows and is asked, programs that come and go, files that are missing."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from hack.fake_nvml.library import put_on_the_bus
from tests.integration.nvml.gpu_node import GPU, Node, node

ENERGY = "nvmlDeviceGetTotalEnergyConsumption"


async def polls(here: Node, count: int, slot: int = 0) -> Counter[str]:
    """Wait for so many readings of this GPU; the calls about it since the first of them, but the last one's."""

    def readings() -> list[int]:
        return [
            at for at, call in enumerate(calls()) if (call.function, call.slot) == ("nvmlDeviceGetTotalEccErrors", slot)
        ]

    calls = here.gpus.recorded_calls
    first = len(readings())
    async with asyncio.timeout(60):
        while len(readings()) <= first + count:
            await asyncio.sleep(0.05)
    begin, end = readings()[first], readings()[first + count]
    return Counter(call.function for call in calls()[begin:end] if call.slot == slot)


async def test_a_poll_is_few_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with node(tmp_path, "dgx-h100", monkeypatch, records_calls=True) as here:
        await here.until(lambda r: r.available == 8)
        found = await polls(here, 3)
        assert found.total() <= 3 * 12
        assert ENERGY not in found
        assert ENERGY not in {call.function for call in here.gpus.recorded_calls()}
        assert found["nvmlDeviceGetGpuFabricInfoV"] == 3


async def test_the_drivers_word_counts_after_a_second(dgx: Node) -> None:
    dgx.gpus.write("action 62 3", "action 94 1 300")
    dgx.gpus.xid(0, 94)
    dgx.gpus.xid(1, 109)
    dgx.gpus.xid(2, 62)
    dgx.gpus.xid(3, 95)
    await dgx.until_unhealthy({0: "ResetRequired", 1: "ResetRequired", 3: "ResetRequired"})
    assert dgx.device(1).message.startswith("the driver requests a reset of the GPU, after Xid 109 (Context switch")
    found = await dgx.until(lambda r: bool(r.plugin_message))
    assert f"GPU {dgx.uuids[2]}: the driver requests an end of its peer-to-peer traffic" in found.plugin_message
    dgx.gpus.set("*", recovery_action=0)
    await dgx.until(lambda r: r.available == 8 and not r.plugin_message)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("file nvidiactl missing", "the NVIDIA driver cannot be opened: /dev/nvidiactl is missing"),
        ("file nvidiactl denied", "the NVIDIA driver cannot be opened: /dev/nvidiactl is missing"),
        ("file nvidia0 missing", "the driver has the GPU at 0000:00:06.0 and NVML does not list it: /dev/nvidia0"),
    ],
)
async def test_a_driver_whose_files_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, words: str
) -> None:
    put_on_the_bus(tmp_path / "host")
    proc = tmp_path / "host/proc/driver/nvidia"
    (proc / "gpus/0000:00:06.0").mkdir(parents=True)
    (proc / "version").touch()
    (proc / "gpus/0000:00:06.0/information").write_text("Device Minor: 0\nGPU Excluded: No\n")
    async with node(tmp_path, "h100-one", monkeypatch, [statement]) as here:
        found = await here.until(lambda r: bool(r.plugin_message))
        assert words in found.plugin_message
        here.gpus.write(statement.rpartition(" ")[0] + " there")
        await here.until(lambda r: r.available == 1 and not r.plugin_message)


async def test_the_hosts_library_runs_beside_another_libc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "driver"
    folder.mkdir()
    # the host's, which is not this process's
    for name in ("libc.so.6", "libm.so.6", "libpthread.so.0"):
        (folder / name).write_text("of another system")
    async with node(tmp_path, "h100-one", monkeypatch, libraryDir=str(folder)) as here:
        library = Path(str(here.gpus._library))
        found = await here.until(lambda r: True, GPU) if here.resource() else None
        assert found is None
        (folder / library.name).symlink_to(library)
        monkeypatch.delenv("LD_LIBRARY_PATH")
        (tmp_path / "host/dev/nvidia0").touch()
        await here.until(lambda r: r.available == 1)
        maps = Path(f"/proc/{here.reader_pid()}/maps").read_text()
        assert str(library) in maps
        assert str(folder / "libc.so.6") not in maps
