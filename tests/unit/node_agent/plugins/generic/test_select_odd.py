"""What hosts have that is not as it should be: missing fields, files that cannot be read, no udevd, far too many devices."""

import logging
import os
from pathlib import Path

import pytest
from nodedevice_agent.plugins.generic import source as source_module
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings
from nodedevice_agent.plugins.generic.source import GenericSource

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import source_of
from tests.unit.node_agent.plugins.generic.test_select import DONGLES, Selecting

FTDI = {"udev": {"ID_SERIAL": "FTDI_*"}}


def test_a_host_without_usb(tmp_path: Path) -> None:
    assert Selecting(FakeSysfs(tmp_path), DONGLES).files() == {}
    empty = FakeSysfs(tmp_path)
    empty.root = tmp_path / "nothing"
    assert Selecting(empty, DONGLES).files() == {}


@pytest.mark.parametrize("field", ["idVendor", "idProduct"])
@pytest.mark.parametrize("content", [None, b"", b"xyz", b"\xff\xfe\0\0", b"04034"])
def test_a_device_without_vendor_or_product_is_none(host: FakeSysfs, field: str, content: bytes | None) -> None:
    host.dongle("1-1", 0, serial="A")
    sysfs = host.dongle("1-2", 1, serial="B")
    (host.sys(sysfs) / field).unlink()
    if content is not None:
        (host.sys(sysfs) / field).write_bytes(content)
    assert list(Selecting(host, DONGLES).files()) == ["0403-6001-A"]


def test_a_serial_that_cannot_be_read_is_not_taken_for_none(host: FakeSysfs) -> None:
    sysfs = host.dongle("1-1", 0)
    (host.sys(sysfs) / "serial").mkdir()
    selecting = Selecting(host, DONGLES)
    assert selecting.files() == {}
    (host.sys(sysfs) / "serial").rmdir()
    assert list(selecting.files()) == ["0403-6001-port-1-1"]
    # known by now
    (host.sys(sysfs) / "serial").mkdir()
    assert list(selecting.files()) == ["0403-6001-port-1-1"]


def test_a_device_is_listed_once_all_its_files_are_in_dev(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    tty = host.root / "dev/ttyUSB0"
    tty.unlink()
    selecting = Selecting(host, DONGLES)
    assert selecting.files() == {}
    tty.touch()
    assert selecting.files() == {}
    tty.unlink()
    tty.symlink_to("/dev/null")
    assert list(selecting.files()) == ["0403-6001-A"]


@pytest.mark.parametrize("uevent", ["", "MAJOR=1\n", "DEVNAME=../../etc/shadow\n", "DEVNAME\n", None])
def test_a_device_without_a_file_in_dev_is_none(host: FakeSysfs, uevent: str | None) -> None:
    host.dongle("1-1", 0, serial="A")
    [file] = host.root.glob("sys/devices/**/hidraw0/uevent")
    file.unlink()
    if uevent is not None:
        file.write_text(uevent)
    assert Selecting(host, DONGLES).files() == {"0403-6001-A": ["/dev/ttyUSB0"]}


def test_a_new_device_waits_for_udevd_two_seconds_at_most(host: FakeSysfs) -> None:
    selecting = Selecting(host, FTDI)
    assert selecting.files() == {}
    host.dongle("1-1", 0, serial="A")
    host.udev("c188:0", ID_SERIAL="FTDI_USB_A")
    # udevd is not done with its hidraw
    assert selecting.files() == {}
    assert selecting.select.is_waiting
    selecting.now += 2.0
    assert selecting.files() == {"0403-6001-A": ["/dev/hidraw0", "/dev/ttyUSB0"]}
    assert not selecting.select.is_waiting


def test_a_listed_device_stays_while_udevd_looks_at_one_more_file(host: FakeSysfs) -> None:
    sysfs = host.dongle("1-1", 0, serial="A")
    for number in ("c188:0", "c240:0"):
        host.udev(number, ID_SERIAL="FTDI_USB_A")
    selecting = Selecting(host, FTDI)
    assert list(selecting.files()) == ["0403-6001-A"]
    host.node(f"{sysfs}/1-1:1.2/gpio/gpiochip3", "gpio", "254:3")
    assert selecting.files() == {"0403-6001-A": ["/dev/gpiochip3", "/dev/hidraw0", "/dev/ttyUSB0"]}


def test_what_udevd_wrote_of_the_device_before_is_not_believed(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    selecting = Selecting(host, {**FTDI, "subsystems": ["tty"]})
    host.udev("c188:0", ID_SERIAL="FTDI_USB_A")
    assert list(selecting.files()) == ["0403-6001-A"]
    entry = host.root / "run/udev/data/c188:0"
    os.utime(entry, (1.0, 1.0))
    left = entry.read_bytes()
    host.unplug("1-1")
    assert selecting.files() == {}
    host.dongle("1-2", 0, serial="B")
    entry.write_bytes(left)
    os.utime(entry, (1.0, 1.0))
    assert selecting.files() == {}
    host.udev("c188:0", ID_SERIAL="Other_USB_B")
    assert selecting.files() == {}
    assert not selecting.select.is_waiting


NOTHING = [b"", b"\xff\xff\0", b"E", b"E:", b"E:=x", b"E:ID_SERIAL", b"ID_SERIAL=FTDI_A\n", b"S:ID_SERIAL=FTDI_A\n"]


@pytest.mark.parametrize("content", [*NOTHING, b"E:x=" + b"y" * 10**6])
def test_an_entry_that_says_nothing(host: FakeSysfs, content: bytes) -> None:
    host.dongle("1-1", 0, serial="A")
    for number in ("c188:0", "c240:0"):
        (host.root / f"run/udev/data/{number}").write_bytes(content)
    assert Selecting(host, FTDI).files() == {}


def listed(source: GenericSource) -> set[str]:
    """The IDs after one more scan."""
    source.refresh()
    return {device.id for device in source.devices.latest}


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["reason"] for record in caplog.records if record.levelno == logging.ERROR]


def test_no_udevd_is_said_once_with_the_remedy(host: FakeSysfs, caplog: pytest.LogCaptureFixture) -> None:
    host.dongle("1-1", 0, serial="A")
    (host.root / "run/udev/data").rmdir()
    source = source_of(host.root, *Selecting(host, {**FTDI, "subsystems": ["tty"]}, DONGLES).groups)
    # what needs no udevd is there
    assert listed(source) == {"0403-6001-A"}
    assert errors(caplog) == ["NoUdevDatabase"]
    reason, message = source.devices.trouble
    assert reason == "NoUdevDatabase"
    assert "run udevd on the node" in message
    assert "agents.udev" in message
    (host.root / "run/udev/data").mkdir()
    host.udev("c188:0", ID_SERIAL="FTDI_USB_A")
    assert listed(source) == {"0403-6001-A"}
    assert source.devices.trouble == ("", "")
    assert source.allocate(["0403-6001-A"], None).device_nodes[0].host_path == "/dev/ttyUSB0"


def test_a_pattern_of_more_files_than_fit(
    host: FakeSysfs, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "MAX_DEVICES", 100)
    for number in range(101):
        (host.root / f"dev/many{number:05}").touch()
    source = source_of(host.root, GroupSettings([PathSettings("/dev/many*")], allow_files=True))
    assert listed(source) == {f"many{number:05}" for number in range(100)}
    assert errors(caplog) == ["TooManyDevices"]


def test_once_nothing_is_selected_nothing_is_awaited_or_wrong(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    selecting = Selecting(host, FTDI)
    selecting.files()
    assert selecting.select.is_waiting
    assert selecting.select.scan([], selecting.now) == {}
    assert not selecting.select.is_waiting
    (host.root / "run/udev/data").rename(host.root / "run/udev/nowhere")
    selecting.files()
    assert selecting.select.trouble[0] == "NoUdevDatabase"
    selecting.select.scan([], selecting.now)
    assert selecting.select.trouble == ("", "")
