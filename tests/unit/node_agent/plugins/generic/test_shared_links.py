"""Devices that udev's link by-id does not lead to, as another one that says the same of itself has it."""

import logging
from typing import Any

import pytest
from nodedevice_agent.plugins.generic.source import GenericSource

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import source_of

BY_ID = "/dev/v4l/by-id/usb-046d_C270-video-index0"


def message(source: GenericSource) -> str:
    reason, text = source.devices.trouble
    return text if reason == "SharedLink" else ""


def usb(host: FakeSysfs, port: str, below: str, subsystem: str, number: str, serial: str | None = None) -> str:
    """One file of a device 046d:0825, below its first interface. Returns the file."""
    at = host.usb(port, "046d", "0825", serial)
    return host.node(f"{at}/{port}:1.0/{below}", subsystem, number, parent=f"{at}/{port}:1.0")


# kind of device: directory of links, what is below the interface by number, subsystem, major
KINDS = {
    "cameras": ("v4l", "video4linux/video{}", "video4linux", 81),
    "serial adapters": ("serial", "ttyUSB{0}/tty/ttyUSB{0}", "tty", 188),
    "printers": ("usb", "usbmisc/lp{}", "usbmisc", 180),
    "disks": ("disk", "host{0}/target{0}:0:0/{0}:0:0:0/block/sd{1}", "block", 8),
    "inputs": ("input", "0003:046D:0825.000{0}/input/input{0}/event{0}", "input", 13),
}


@pytest.mark.parametrize("serial", [None, "200901010001"])
@pytest.mark.parametrize("kind", KINDS)
def test_two_of_one_link(host: FakeSysfs, kind: str, serial: str | None, caplog: pytest.LogCaptureFixture) -> None:
    group, below, subsystem, major = KINDS[kind]
    files = [
        usb(host, port, below.format(n, "ab"[n]), subsystem, f"{major}:{n}", serial)
        for n, port in enumerate(("1-1", "2-1"))
    ]
    link = f"/dev/{group}/by-id/usb-046d_0825-if00"
    host.link(link, files[1])
    host.link(f"/dev/{group}/by-path/pci-0000:00:14.0-usb-0:1", files[0])
    source = source_of(host.root, {"paths": [{"path": f"/dev/{group}/by-id/*"}]})
    assert len(source.devices.latest) == 1
    text = message(source)
    assert f"{link} leads to {files[1]}, and {files[0]} (046d:0825" in text
    assert (serial or "no serial") in text
    assert "port 1-1" in text
    assert f"/dev/{group}/by-path/pci-0000:00:14.0-usb-0:1" in text
    assert "or use select" in text
    source.refresh()
    # once
    (line,) = (record for record in caplog.records if "cannot be listed" in record.getMessage())
    assert line.levelno == logging.WARNING
    host.unplug("1-1")
    (host.root / f"dev/{group}/by-path/pci-0000:00:14.0-usb-0:1").unlink()
    source.refresh()
    assert message(source) == ""


def camera(host: FakeSysfs, port: str, number: int, serial: str | None = None) -> str:
    return usb(host, port, f"video4linux/video{number}", "video4linux", f"81:{number}", serial)


@pytest.mark.parametrize(
    "group",
    [
        {"select": {"usb": {"vendor": "046d"}}},
        {"paths": [{"path": "/dev/v4l/by-path/*"}]},
        {"paths": [{"path": "/dev/video*"}]},
    ],
)
def test_nothing_is_said_where_both_are_listed(host: FakeSysfs, group: dict[str, Any]) -> None:
    for number, port in enumerate(("1-1", "2-1")):
        host.link(f"/dev/v4l/by-path/{port}", camera(host, port, number))
    host.link(BY_ID, "/dev/video1")
    source = source_of(host.root, group)
    assert len(source.devices.latest) == 2
    assert message(source) == ""
    # by the link, and by what the other one is offered with
    both = source_of(host.root, {"paths": [{"path": BY_ID}]}, {"paths": [{"path": "/dev/v4l/by-path/1-1"}]})
    assert len(both.devices.latest) == 2
    assert message(both) == ""


def test_other_files_and_other_devices_have_other_links(host: FakeSysfs) -> None:
    at = host.usb("1-1", "046d", "0825", "A")
    for number in range(2):
        node = f"{at}/1-1:1.{number}/video4linux/video{number}"
        host.node(node, "video4linux", f"81:{number}", parent=f"{at}/1-1:1.{number}")
    camera(host, "2-1", 2, "B")
    host.link(BY_ID, "/dev/video0")
    assert message(source_of(host.root, {"paths": [{"path": BY_ID}]})) == ""


def disk(host: FakeSysfs, number: int) -> str:
    """On a bus where this program knows no serials."""
    place = f"/devices/pci0000:00/0000:00:1f.2/ata{number}/host{number}/target{number}:0:0/{number}:0:0:0"
    return host.node(f"{place}/block/sd{'abc'[number]}", "block", f"8:{number}", parent=place)


def test_disks_that_udevd_knows_to_claim_one_link(host: FakeSysfs) -> None:
    link = "/dev/disk/by-id/ata-CHEAP_0001"
    files = [disk(host, number) for number in range(3)]
    host.link(link, files[0])
    claims = host.root / "run/udev/links" / link.removeprefix("/dev").replace("/", "\\x2f")
    claims.mkdir(parents=True)
    for number in ("b8:0", "b8:1", "b8:77"):
        (claims / number).symlink_to("0:/dev/x")
    text = message(source_of(host.root, {"paths": [{"path": link}]}))
    assert f"{link} leads to {files[0]}, and {files[1]} would" in text
    assert files[2] not in text
