"""What the generic plugin says of paths that match no file."""

from pathlib import Path

from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.settings import GenericSettings, GroupSettings, PathSettings

from tests.fakes.sysfs import FakeSysfs


def source_of(root: Path, *paths: str) -> GenericSource:
    groups = [GroupSettings([PathSettings(path)]) for path in paths]
    source = GenericSource(GenericSettings("example.com/serial", groups), str(root), FileWatcher())
    source.refresh()
    return source


def test_a_path_that_is_not_there_is_named_until_it_is(tmp_path: Path) -> None:
    source = source_of(tmp_path, "/dev/ttyUSB0", "/dev/ttyACM*")
    reason, message = source.devices.trouble
    assert reason == "NoMatch"
    assert "/dev/ttyUSB0, /dev/ttyACM*: connect the device, or correct the path" in message
    FakeSysfs(tmp_path).dongle("1-1", 0)
    source.refresh()
    assert len(source.devices.latest) == 1
    assert source.devices.trouble == ("", "")


def test_many_are_named_by_the_first(tmp_path: Path) -> None:
    source = source_of(tmp_path, *(f"/dev/thing{number}" for number in range(5)))
    assert "/dev/thing0, /dev/thing1, /dev/thing2, …: connect" in source.devices.trouble[1]
