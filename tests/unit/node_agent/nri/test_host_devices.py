"""Device files of the host, read where every Linux machine has some; and a file system that hangs, which delays nobody else."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri import host_devices
from nodedevice_agent.nri.host_devices import MAX_THREADS, HostDevice, HostDeviceStat, stat_device

from tests.fakes.runtime_handler import PATIENCE_SECONDS

# a process of its own, because the thread would hang this one
_ENDS = """
import asyncio, threading
from nodedevice_agent.nri import host_devices

async def main():
    began = threading.Event()
    host_devices.stat_device = lambda path: (began.set(), threading.Event().wait())
    asking = asyncio.create_task(host_devices.HostDeviceStat().stat_devices(["/hangs"]))
    while not began.is_set():
        await asyncio.sleep(0)
    asking.cancel()

asyncio.run(main())
print("ended")
"""


def test_a_device_file_and_a_link_to_it(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/null")
    for path in ("/dev/null", str(tmp_path / "link")):
        (device,) = stat_device(path)
        assert (device.below, device.type, device.major, device.minor, device.mode) == ("", "c", 1, 3, 0o666)


@pytest.mark.root
def test_a_directory_stands_for_the_device_files_below(tmp_path: Path) -> None:
    for name in "b", "a", "sub/c", "shm/d", "console":
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, 0o20640, os.makedev(1, 3))
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/dev/null")
    assert [device.below for device in stat_device(str(tmp_path))] == ["a", "b", "sub/c"]


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], ["one/a", "one/two/b"], ["a", "shm/b", "c", "e"]])
def test_other_files_have_a_bound_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]) -> None:
    monkeypatch.setattr(host_devices, "MAX_ENTRIES", 3)
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    with pytest.raises(InjectionRefused, match=f"{tmp_path} .*more than 3 entries"):
        stat_device(str(tmp_path))


def test_a_path_without_devices_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for path in str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path / "loop"), str(tmp_path / "empty"):
        with pytest.raises(InjectionRefused) as caught:
            stat_device(path)
        assert path in str(caught.value)


@pytest.mark.parametrize("path", ["", "dev/null", "/dev/nu\0ll", "-/dev/null"])
def test_only_absolute_paths(path: str) -> None:
    with pytest.raises(InjectionRefused, match="not an absolute path"):
        stat_device(path)


class Hanging:
    """Reading a path that begins with /hangs blocks until the gate opens; all others are read."""

    def __init__(self) -> None:
        self.read: list[str] = []
        self.gate = threading.Event()

    def __call__(self, path: str) -> tuple[HostDevice, ...]:
        self.read.append(path)
        if path.startswith("/hangs"):
            assert self.gate.wait(PATIENCE_SECONDS)
            return ()
        return stat_device(path)


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hanging]:
    hanging = Hanging()
    monkeypatch.setattr(host_devices, "stat_device", hanging)
    yield hanging
    hanging.gate.set()


async def given_up(host: HostDeviceStat, hanging: Hanging, *paths: str) -> None:
    """A caller has asked for these and given up waiting for the first path that hangs."""
    first = min(path for path in paths if path.startswith("/hangs"))
    asking = asyncio.create_task(host.stat_devices(paths))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while first not in hanging.read:
            await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


async def test_each_path_by_itself() -> None:
    found = await HostDeviceStat().stat_devices(["/dev/zero", "/dev/null", "/dev/zero"])
    assert {path: devices[0].minor for path, devices in found.items()} == {"/dev/null": 3, "/dev/zero": 5}


async def test_a_path_that_hangs_is_read_once_and_refused_at_once(hanging: Hanging) -> None:
    host = HostDeviceStat()
    await given_up(host, hanging, "/hangs/a", "/dev/null")
    for _ in range(2 * MAX_THREADS):
        with pytest.raises(InjectionRefused, match=r"/hangs/a .*has not finished"):
            await host.stat_devices(["/dev/null", "/hangs/a"])
    assert hanging.read.count("/hangs/a") == 1


async def test_paths_that_hang_delay_no_other_up_to_a_number_and_are_read_again_later(hanging: Hanging) -> None:
    host = HostDeviceStat()
    for number in range(MAX_THREADS):
        assert (await host.stat_devices(["/dev/null"]))["/dev/null"][0].minor == 3
        await given_up(host, hanging, f"/hangs/{number}")
    with pytest.raises(InjectionRefused, match=r"8 reads .* hang, one of them at /hangs/0"):
        await host.stat_devices(["/dev/null"])
    hanging.gate.set()
    for path in ("/dev/null", "/hangs/0"):
        await passed(host, path)


async def test_a_read_without_a_thread_is_not_taken_for_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    host = HostDeviceStat()
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(InjectionRefused, match=r"/dev/null .* no thread can be started: free process IDs"):
            await host.stat_devices(["/dev/null"])
    assert await host.stat_devices(["/dev/null"]) == {"/dev/null": stat_device("/dev/null")}


def test_a_hanging_thread_does_not_delay_the_end_of_the_agent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENDS], timeout=PATIENCE_SECONDS, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("ended\n", "")


async def passed(host: HostDeviceStat, path: str) -> None:
    """It is read again as soon as the thread that hung has ended."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await host.stat_devices([path])
            except InjectionRefused:
                await asyncio.sleep(0)
            else:
                return
