"""A device that hangs keeps a reader of sysfs waiting; the agent answers all others meanwhile."""

import asyncio
import threading

import pytest
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.generic import scan

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import paths, settings_of, unread_source


async def test_sysfs_is_never_read_in_the_loop(sysfs_that_hangs: threading.Event, host: FakeSysfs) -> None:
    """The file of one source is on a device that hangs; the loop and another source go on."""
    device_files(host, "one", "two")
    reads = FileReads()
    hanging, other = (
        unread_source(host.root, paths(f"/dev/{name}"), name=f"example.com/{name}", file_reads=reads)
        for name in ("one", "two")
    )
    reading = asyncio.create_task(hanging.read())
    await asyncio.sleep(0)
    assert not reading.done()
    sysfs_that_hangs.set()
    await other.read()
    await reading
    assert [[device.id for device in each.devices.latest] for each in (hanging, other)] == [["one"], ["two"]]


async def test_settings_that_change_meanwhile_count_later(sysfs_that_hangs: threading.Event, host: FakeSysfs) -> None:
    device_files(host, "one")
    source = unread_source(host.root, paths("/dev/one"), paths("/dev/two"))
    reading = asyncio.create_task(source.read())
    await asyncio.sleep(0)
    source.reconfigure(settings_of(paths("/dev/two")))
    sysfs_that_hangs.set()
    await reading
    assert [device.id for device in source.devices.latest] == ["one"]
    await source.read()
    assert [device.id for device in source.devices.latest] == []


def device_files(host: FakeSysfs, *names: str) -> None:
    host.root.joinpath("dev").mkdir(exist_ok=True)
    for name in names:
        host.root.joinpath("dev", name).symlink_to("/dev/null")


@pytest.fixture
def sysfs_that_hangs(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Until it is set, whoever reads sysfs waits; the thread of the event loop must not."""
    answers, scanned = threading.Event(), scan.SelectScan.scan

    def waiting(self: scan.SelectScan, *given: object) -> object:
        assert threading.current_thread() is not threading.main_thread(), "read in the event loop"
        assert answers.wait(60)
        return scanned(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(scan.SelectScan, "scan", waiting)
    return answers
