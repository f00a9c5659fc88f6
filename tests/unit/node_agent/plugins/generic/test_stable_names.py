"""Files by the kernel's names that have a lasting one beside: which these are, what to write instead, and how often it is said."""

import logging
from pathlib import Path

import pytest
from nodedevice_agent.plugins.generic.found import FoundFile
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings
from nodedevice_agent.plugins.generic.stable_names import stable_names

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import settings_of, source_of

_SERIAL, _DISK = "/dev/serial/by-id", "/dev/disk/by-id"
_FTDI_A, _FTDI_B = f"{_SERIAL}/usb-FTDI_UART_A-if00-port0", f"{_SERIAL}/usb-FTDI_UART_B-if00-port0"
_DISK_1, _DISK_2 = f"{_DISK}/nvme-Samsung_S1", f"{_DISK}/nvme-Samsung_S2"
_VIDEO_0, _VIDEO_1 = "/dev/v4l/by-path/[odd]-index0", "/dev/v4l/by-path/[odd]-index1"
_LINKS = {
    _FTDI_B: "/dev/ttyUSB1",
    _FTDI_A: "/dev/ttyUSB0",
    "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0": "/dev/ttyUSB0",
    _DISK_1: "/dev/nvme0n1",
    f"{_DISK}/nvme-Samsung_S1-part1": "/dev/nvme0n1p1",
    f"{_DISK}/nvme-eui.0025": "/dev/nvme0n1",
    _DISK_2: "/dev/nvme1n1",
    _VIDEO_0: "/dev/video0",
    _VIDEO_1: "/dev/video1",
}


def _found(pattern: str, *paths: str, is_device: bool = True) -> dict[str, list[FoundFile]]:
    return {pattern: [FoundFile(path, is_device=is_device) for path in paths]}


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        pytest.param(_found("/dev/tty*", "/dev/ttyUSB0", "/dev/ttyUSB1"), [f"{_SERIAL}/usb-FTDI_UART_*"], id="pattern"),
        pytest.param(_found("/dev/ttyUSB0", "/dev/ttyUSB0"), [_FTDI_A], id="a path, by-id before by-path"),
        pytest.param(_found("/dev/ttyUSB*", "/dev/ttyUSB0"), [_FTDI_A], id="a pattern with one match"),
        pytest.param(
            _found("/dev/nvme?n1", "/dev/nvme0n1", "/dev/nvme1n1"), [_DISK_1, _DISK_2], id="it would match a partition"
        ),
        pytest.param(_found("/dev/video*", "/dev/video0", "/dev/video1"), [_VIDEO_0, _VIDEO_1], id="wildcards"),
        pytest.param(_found(f"{_SERIAL}/*", _FTDI_A, _FTDI_B), [], id="lasting already"),
        pytest.param(_found("/dev/gps", "/dev/gps"), [], id="a link of the administrator's"),
        pytest.param(_found("/dev/fuse", "/dev/fuse"), [], id="no hardware"),
        pytest.param(_found("/dev/ttyUSB0", "/dev/ttyUSB0", is_device=False), [], id="a plain file"),
        pytest.param(_found("/dev/ttyUSB*"), [], id="none there"),
    ],
)
def test_what_to_write_instead(found: dict[str, list[FoundFile]], instead: list[str]) -> None:
    [pattern] = found
    assert stable_names(found, _LINKS) == ({pattern: tuple(instead)} if instead else {})
    assert stable_names(found, {}) == {}


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    """With two dongles, of which udevd has one by id."""
    host = FakeSysfs(tmp_path)
    host.dongle("1-1", 0, serial="A")
    host.dongle("1-2", 1)
    host.link(_FTDI_A, "/dev/ttyUSB0")
    return host


def test_said_once_until_the_configuration_changes(host: FakeSysfs, caplog: pytest.LogCaptureFixture) -> None:
    groups = [GroupSettings([PathSettings(path)]) for path in ("/dev/ttyUSB*", "/dev/hidraw0", _FTDI_A)]
    source = source_of(host.root, *groups[:2])
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            source.refresh()
        reason, message = source.devices.trouble
        assert (reason, [record.path for record in caplog.records]) == ("KernelNames", ["/dev/ttyUSB*"])  # type: ignore[attr-defined]
        assert f"/dev/ttyUSB* ({_FTDI_A})" in message
        assert [device.is_healthy for device in source.devices.latest] == [True] * 3
        # one more device of the same pattern is in the message, and no news in the log
        host.link(_FTDI_B, "/dev/ttyUSB1")
        source.refresh()
        assert f"{_SERIAL}/usb-FTDI_UART_*" in source.devices.trouble[1]
        source.reconfigure(settings_of(groups[2]))
        source.refresh()
    assert source.devices.trouble == ("", "")
    assert len(caplog.records) == 1
