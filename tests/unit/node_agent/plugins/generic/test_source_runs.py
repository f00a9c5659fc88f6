"""When a source of device files looks for them: at once, at what wakes it, and every half minute; and what it follows meanwhile."""

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.plugins.generic import source as generic_source
from nodedevice_agent.plugins.generic.source import GenericSource

from tests.fakes.background import background
from tests.fakes.sysfs import FakeSysfs
from tests.fakes.virtual_time import later, virtual_time
from tests.unit.node_agent.plugins.generic.sources import paths, settings_of, unread_source
from tests.unit.node_agent.plugins.generic.test_unread import failing, ids

pytestmark = virtual_time


class ReadsAtOnce(FileReads):
    """Without a thread, whose time is the machine's. at: when, in seconds since the beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.at: list[float] = []

    async def run(self, read: Callable[[], Any]) -> Any:
        self.at.append(round(asyncio.get_running_loop().time() - 1000, 2))
        return read()


class Watcher(FileWatcher):
    """Without inotify. watched: every directory, in order. ended: subscribers that are gone."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[Path] = []
        self.ended = 0

    def watch(self, directory: Path, contents: bool) -> Path:
        self.watched.append(directory)
        return directory

    def forget(self, subscription: Subscription) -> None:
        self.ended += 1
        super().forget(subscription)


class Kernel:
    """Its reports of devices. listeners: what wakes them."""

    def __init__(self) -> None:
        self.listeners: list[Callable[[], None]] = []

    @contextmanager
    def __call__(self, wake: Callable[[], None]) -> Iterator["Kernel"]:
        self.listeners.append(wake)
        try:
            yield self
        finally:
            self.listeners.remove(wake)

    def report(self) -> None:
        for wake in self.listeners:
            wake()


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    kernel = Kernel()
    monkeypatch.setattr(generic_source, "Uevents", kernel)
    return kernel


def made(host: FakeSysfs, group: dict[str, Any]) -> tuple[GenericSource, ReadsAtOnce, Watcher]:
    reads, watcher = ReadsAtOnce(), Watcher()
    return unread_source(host.root, group, watcher=watcher, file_reads=reads), reads, watcher


async def test_at_once_and_every_half_minute(host: FakeSysfs, kernel: Kernel) -> None:
    """Twice at first: only reading shows what is to be followed, which has to be followed before it is read."""
    source, reads, watcher = made(host, paths("/dev/tty*"))
    async with background(source.run()):
        await later(61)
        assert reads.at == [0, 0, 30, 60]
        assert watcher.watched == [host.root / "dev"] * 3
        assert kernel.listeners == []
    assert watcher.ended == 1


async def test_so_many_directories_are_followed(host: FakeSysfs, kernel: Kernel) -> None:
    """The first ones; changes in others are seen at the next look."""
    source, _, watcher = made(host, paths("/dev/*/x"))
    folders = [host.root / f"dev/d{number:03}" for number in range(512)]
    for each in folders:
        each.mkdir()
    async with background(source.run()):
        await later(1)
    assert watcher.watched == [host.root / "dev", *folders[:-1]]


async def test_what_could_not_be_read_is_tried_each_second(host: FakeSysfs, kernel: Kernel) -> None:
    source, reads, _ = made(host, paths("/dev/tty*"))
    async with background(source.run()):
        with failing(host.root, "listdir", errno.EIO):
            await later(2.5)
        await later(32)
    assert reads.at == [0, 0, 1, 2, 3, 33]


async def test_other_settings_count_at_once(host: FakeSysfs, kernel: Kernel) -> None:
    host.node("/devices/virtual/misc/a", "misc", "10:1")
    source, reads, _ = made(host, paths("/dev/none"))
    source.reconfigure(settings_of(paths("/dev/none")))
    async with background(source.run()):
        await later(5)
        source.reconfigure(settings_of(paths("/dev/a")))
        await later(0.01)
        assert (ids(source), reads.at) == (["a"], [0, 0, 5])
    source.reconfigure(settings_of(paths("/dev/none")))
    assert ids(source) == ["a"]


async def test_reports_that_come_together_are_one_look(host: FakeSysfs, kernel: Kernel) -> None:
    source, reads, _ = made(host, {"select": {"subsystems": ["tty"]}})
    async with background(source.run()):
        await later(5)
        kernel.report()
        await later(0.05)
        host.dongle("1-1", 0)
        kernel.report()
        await later(0.04)
        assert ids(source) == []
        await later(0.02)
        assert len(ids(source)) == 1
        await later(30.5)
    assert reads.at == [0, 5.1, 35.2]


async def test_a_device_that_udevd_has_yet_to_describe_is_asked_for_often(host: FakeSysfs, kernel: Kernel) -> None:
    source, reads, watcher = made(host, {"select": {"udev": {"ID": "x"}}})
    async with background(source.run()):
        await later(1)
        assert watcher.watched == [host.root / "run/udev/data"]
        host.dongle("1-1", 0)
        kernel.report()
        await later(1)
        assert ids(source) == []
        host.udev("c188:0", ID="x")
        host.udev("c240:0", ID="x")
        await later(0.4)
        assert len(ids(source)) == 1
    assert reads.at == [0, 0, 1.1, 1.45, 1.8, 2.15]
