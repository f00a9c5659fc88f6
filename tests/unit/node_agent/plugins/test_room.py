"""The devices of all configured resources of a node have a bound together."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.room import Room
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import paths, source_of


@pytest.fixture
def room() -> Room:
    return Room(most=50, least=4)


def host_with(root: Path, files: int) -> FakeSysfs:
    host = FakeSysfs(root)
    for number in range(files):
        (host.root / f"dev/thing{number:03}").symlink_to("/dev/null")
    return host


def generic(host: FakeSysfs, room: Room, name: str, **group: Any) -> GenericSource:
    return source_of(host.root, paths("/dev/thing*", **group), name=f"example.com/{name}", room=room)


def test_resources_of_any_number(tmp_path: Path, room: Room) -> None:
    host = host_with(tmp_path, 30)
    sources = [generic(host, room, f"r{number}") for number in range(10)]
    assert [len(each.devices.latest) for each in sources] == [30, 24, *[4] * 8]
    reason, message = sources[1].devices.trouble
    assert reason == "TooManyDevices"
    assert "example.com/r1 has more devices than the 24 that are listed" in message
    assert "the paths or the selection in groups of example.com/r1, or of example.com/r0, which lists 30" in message
    # what is listed stays, in whatever order they are read
    for source in reversed(sources):
        source.refresh()
    assert [len(each.devices.latest) for each in sources] == [30, 24, *[4] * 8]


def test_what_is_left_goes_to_the_next(tmp_path: Path, room: Room) -> None:
    host = host_with(tmp_path, 30)
    first, second = generic(host, room, "r0"), generic(host, room, "r1")
    del first
    room.forget("example.com/r0")
    second.refresh()
    assert len(second.devices.latest) == 30
    assert second.devices.trouble == ("", "")


def test_shares_count(tmp_path: Path, room: Room) -> None:
    """Each is a device: 30 files for 1,000 containers are no 30,000 objects."""
    source = generic(host_with(tmp_path, 30), room, "r0", count=20)
    assert len(source.devices.latest) == 50
    assert "TooManyDevices" in source.devices.trouble


async def test_simulated_devices_count(tmp_path: Path, room: Room) -> None:
    first, second = (
        SimulatedSource(SimulatedSettings(f"example.com/{name}", 40), tmp_path, FileWatcher(), room) for name in "ab"
    )
    await first.read()
    await second.read()
    assert (len(first.devices.latest), len(second.devices.latest)) == (40, 14)
    assert "lower count or partsPerDevice of example.com/b, or of example.com/a" in second.devices.trouble[1]
    assert len(generic(host_with(tmp_path / "host", 30), room, "r0").devices.latest) == 4
