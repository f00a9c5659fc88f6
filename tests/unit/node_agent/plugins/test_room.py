"""The devices of all configured resources of a node have a bound together."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins import room as module
from nodedevice_agent.plugins.generic import devices
from nodedevice_agent.plugins.generic.functions import UsbDevice
from nodedevice_agent.plugins.generic.settings import GenericSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.generic.sysfs import Sysfs
from nodedevice_agent.plugins.room import Room
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource

from tests.fakes.sysfs import FakeSysfs


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_DEVICES_OF_ALL", 50)
    monkeypatch.setattr(module, "LEAST_DEVICES", 4)


@pytest.fixture
def room() -> Room:
    return Room()


def host_with(root: Path, files: int) -> FakeSysfs:
    host = FakeSysfs(root)
    for number in range(files):
        (host.root / f"dev/thing{number:03}").symlink_to("/dev/null")
    return host


def generic(host: FakeSysfs, room: Room, name: str, path: str = "/dev/thing*", **group: Any) -> GenericSource:
    raw = {"resourceName": f"example.com/{name}", "groups": [{"paths": [{"path": path}], **group}]}
    source = GenericSource(msgspec.convert(raw, GenericSettings), str(host.root), FileWatcher(), room=room)
    source.refresh()
    return source


def test_resources_of_any_number(tmp_path: Path, room: Room) -> None:
    host = host_with(tmp_path, 30)
    sources = [generic(host, room, f"r{number}") for number in range(10)]
    assert [len(each.devices.latest) for each in sources] == [30, 24, *[4] * 8]
    reason, message = sources[1].devices.trouble
    assert reason == "TooManyDevices"
    assert "example.com/r1 has more devices than the 24 that are listed" in message
    assert (
        "narrow the paths or the selection in groups of example.com/r1, or of example.com/r0, which lists 30" in message
    )
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


def test_shares_count(tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a device: 30 files for 1,000 containers are no 30,000 objects."""
    made: list[Any] = []
    listed = devices._listed

    def noted(*given: Any) -> Any:
        made.append(given)
        return listed(*given)

    monkeypatch.setattr(devices, "_listed", noted)
    host = host_with(tmp_path, 30)
    source = generic(host, room, "r0", count=20)
    assert len(source.devices.latest) == 50
    assert len(made) <= 60
    assert "TooManyDevices" in source.devices.trouble


async def test_simulated_devices_count(tmp_path: Path, room: Room) -> None:
    state = tmp_path / "state"
    first, second = (
        SimulatedSource(SimulatedSettings(f"example.com/{name}", 40), state, FileWatcher(), room) for name in "ab"
    )
    await first.read()
    await second.read()
    assert (len(first.devices.latest), len(second.devices.latest)) == (40, 14)
    assert "lower count or partsPerDevice of example.com/b, or of example.com/a" in second.devices.trouble[1]
    host = host_with(tmp_path / "host", 30)
    assert len(generic(host, room, "r0").devices.latest) == 4


def test_files_beyond_the_limit_are_not_read(tmp_path: Path, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with(tmp_path, 300)
    read: list[str] = []
    original = Sysfs.numa_nodes_of

    def noted(self: Sysfs, kind: str, number: str) -> tuple[int, ...]:
        read.append(number)
        return original(self, kind, number)

    monkeypatch.setattr(Sysfs, "numa_nodes_of", noted)
    generic(host, room, "r0")
    assert len(read) == 51


def test_a_list_that_does_not_change_is_the_same_objects(tmp_path: Path, room: Room) -> None:
    host = host_with(tmp_path, 5)
    source = generic(host, room, "r0")
    before = source.devices.latest
    source.refresh()
    assert source.devices.latest is before
    assert all(source._by_id[device.id].listed is device for device in before)
    (host.root / "dev/thing000").unlink()
    source.refresh()
    assert [device is other for device, other in zip(source.devices.latest, before[1:], strict=True)] == [True] * 4
    assert all(source._by_id[device.id].listed is device for device in source.devices.latest)


def test_one_reading_of_sysfs_for_all_that_ask_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = FakeSysfs(tmp_path)
    host.dongle("1-1", 0, "A")
    shared, readings = Sysfs(str(host.root)), list[Sysfs]()
    read = Sysfs.usb_devices

    def noted(self: Sysfs) -> dict[str, UsbDevice]:
        readings.append(self)
        return read(self)

    monkeypatch.setattr(Sysfs, "usb_devices", noted)
    nodes, usb_devices = shared.read(0.0)
    assert len(usb_devices) == 1
    for _ in range(10):
        assert shared.read(shared._reading.began_at) == (nodes, usb_devices)
    assert len(readings) == 1
    # another file that was found since, and a later question
    host.dongle("1-2", 1, "B")
    assert len(shared.read(shared._reading.began_at, ["c188:1"])[1]) == 2
    assert len(readings) == 2
    host.unplug("1-1")
    assert len(shared.read(shared._reading.began_at + 0.001)[1]) == 1
