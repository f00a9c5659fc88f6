"""One device whose files fail or hang affects only itself: each call of the system, each error, and a call that never returns."""

import builtins
import errno
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib import patient_reads
from nodedevice_common import threads

from tests.fakes.polling import until
from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import unread_source

CALLS = ("listdir", "readlink", "scandir", "stat", "lstat", "open")
HANG = 0
SHORT_SECONDS = 0.08
ERRORS = (errno.EIO, errno.EACCES, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ETIMEDOUT, HANG)
# what is only of the second of three dongles
OF_FAULTY = ("/1-2", "ttyUSB1", "188:1", "hidraw1", "240:1", "usb-B")
GROUPS: dict[str, dict[str, Any]] = {
    "by serial": {"select": {"usb": {"vendor": "0403"}, "subsystems": ["tty"]}},
    "by subsystem": {"select": {"subsystems": ["tty"]}},
    "by port": {"select": {"usb": {"port": "1-*"}, "subsystems": ["tty"]}},
    "by udev": {"select": {"udev": {"ID_VENDOR_ID": "0403"}, "subsystems": ["tty"]}},
    "by name": {"paths": [{"path": "/dev/ttyUSB*"}]},
    "by link": {"paths": [{"path": "/dev/serial/by-id/*"}]},
    "two files": {"paths": [{"path": "/dev/ttyUSB*"}, {"path": "/dev/hidraw*"}]},
}


class Faults:
    """Of calls about paths of the faulty device. asked: those paths."""

    def __init__(self, root: Path) -> None:
        self.asked: list[str] = []
        self._root = str(root)
        self._ends = threading.Event()

    @contextmanager
    def of(self, call: str, number: int) -> Iterator[None]:
        module: Any = builtins if call == "open" else os
        real: Callable[..., Any] = getattr(module, call)

        def faulty(path: Any, *args: Any, **options: Any) -> Any:
            text = str(path)
            if not text.startswith(self._root) or not any(each in text for each in OF_FAULTY):
                return real(path, *args, **options)
            self.asked.append(text)
            if number == HANG:
                assert self._ends.wait(60)
                return real(path, *args, **options)
            raise OSError(number, os.strerror(number), text)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, call, faulty)
            if number == HANG:
                patch.setattr(patient_reads, "_PATIENCE_SECONDS", SHORT_SECONDS)
            try:
                yield
            finally:
                self._ends.set()


def plug(host: FakeSysfs, port: str, number: int, serial: str) -> None:
    host.dongle(port, number, serial)
    for each in (f"c188:{number}", f"c240:{number}"):
        host.udev(each, ID_VENDOR_ID="0403")
    host.link(f"/dev/serial/by-id/usb-{serial}-if00", f"/dev/ttyUSB{number}")


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    host = FakeSysfs(tmp_path)
    for number, serial in enumerate("ABC"):
        plug(host, f"1-{number + 1}", number, serial)
    return host


@pytest.fixture
async def short_patience(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    monkeypatch.setattr(patient_reads, "_PATIENCE_SECONDS", SHORT_SECONDS)
    yield
    await nothing_hangs()


async def nothing_hangs() -> None:
    """Each thread ends once its call returns."""
    await until(lambda: threads_that_read() == 0)


def threads_that_read() -> int:
    return sum(thread.name == "files" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("group", "number"),
    [
        pytest.param(group, number, id=f"{group}-{errno.errorcode.get(number, 'hang')}")
        for group in GROUPS
        for number in (ERRORS if group in ("by serial", "by link") else (errno.EIO, HANG))
    ],
)
@pytest.mark.parametrize("call", CALLS)
async def test_a_faulty_device_affects_only_itself(host: FakeSysfs, group: str, call: str, number: int) -> None:
    source, faults = unread_source(host.root, GROUPS[group]), Faults(host.root)
    await source.read()
    before = {device.id: device for device in source.devices.latest}
    faulty = [i for i, device in before.items() if any(each in str(device.files) for each in OF_FAULTY)]
    assert (len(before), len(faulty)) == (3, 1)
    plug(host, "1-4", 3, "D")
    with faults.of(call, number):
        for _ in range(3):
            await source.read()
        after = {device.id: device for device in source.devices.latest}
        reason, message = source.devices.trouble
    assert {i: after[i] for i in before} == before
    assert len(after) == 4
    (new,) = after.keys() - before.keys()
    assert after[new].is_healthy
    assert any(each in str(after[new].files) for each in ("ttyUSB3", "usb-D"))
    assert [node.host_path for node in source.allocate([new], None).device_nodes]
    # what lstat is for can be known without it
    if faults.asked and call != "lstat":
        assert reason
        assert any(each in message for each in OF_FAULTY), message
        assert "connect the device again" in message
    await nothing_hangs()
    await source.read()
    assert {device.id for device in source.devices.latest} == after.keys()
    assert "cannot read" not in source.devices.trouble[1]


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("group", ["by serial", "by subsystem", "by link"])
async def test_an_unplugged_device_goes_while_another_one_hangs(host: FakeSysfs, group: str) -> None:
    source = unread_source(host.root, GROUPS[group])
    await source.read()
    before = [device.id for device in source.devices.latest]
    serial = host.sys("/bus/usb/devices/1-2/serial")
    serial.unlink()
    os.mkfifo(serial)
    (host.root / "dev/serial/by-id/usb-C-if00").unlink()
    host.unplug("1-3")
    try:
        for _ in range(3):
            await source.read()
            assert [device.id for device in source.devices.latest] == before[:2]
        await until(lambda: threads_that_read() == 1)
    finally:
        os.close(os.open(serial, os.O_WRONLY))


@pytest.mark.usefixtures("short_patience")
async def test_more_devices_hang_than_threads_are_lent(host: FakeSysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the last look counts, with the reason; and all is read again once they respond."""
    monkeypatch.setattr(patient_reads, "MAX_HANGING", 2)
    source = unread_source(host.root, GROUPS["by serial"])
    await source.read()
    before, serials = source.devices.latest, []
    for port in ("1-1", "1-2", "1-3"):
        serials.append(host.sys(f"/bus/usb/devices/{port}/serial"))
        serials[-1].unlink()
        os.mkfifo(serials[-1])
    try:
        for _ in range(3):
            await source.read()
            assert source.devices.latest == before
            assert "2 reads of files of the host hang, one of them at" in source.devices.trouble[1]
        plug(host, "1-4", 3, "D")
    finally:
        for serial, text in zip(serials, "ABC", strict=True):
            fresh = serial.with_name("fresh")
            fresh.write_text(text)
            fifo = serial.rename(serial.with_name("fifo"))
            fresh.rename(serial)
            with pytest.MonkeyPatch.context():
                os.close(os.open(fifo, os.O_RDWR))
    await nothing_hangs()
    await source.read()
    assert len(source.devices.latest) == 4


async def test_no_thread_can_be_started(host: FakeSysfs, monkeypatch: pytest.MonkeyPatch) -> None:
    source = unread_source(host.root, GROUPS["by serial"])

    def start(run: object, name: str) -> threading.Thread:
        raise OSError(errno.EAGAIN, threads.NO_THREAD)

    with monkeypatch.context() as without:
        without.setattr(threads, "start", start)
        with pytest.raises(OSError, match="no thread can be started"):
            await source.read()
    await source.read()
    before = source.devices.latest
    assert len(before) == 3
    plug(host, "1-4", 3, "D")
    with monkeypatch.context() as without:
        without.setattr(threads, "start", start)
        await source.read()
        assert source.devices.latest == before
        assert "raise the limit" in source.devices.trouble[1]
        assert source.is_in_doubt
    await source.read()
    assert len(source.devices.latest) == 4
    assert source.devices.trouble == ("", "")
