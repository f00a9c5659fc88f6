"""Members of a subsystem that have no hardware, and what a selection that matches nothing names instead."""

from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.plugins.generic.source import GenericSource

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import source_of
from tests.unit.node_agent.plugins.generic.test_select import DONGLES, Selecting

PCI = "/devices/pci0000:00/0000:00:1f.3"
UART = "/devices/pnp0/00:04"
OLD_UART = "/devices/platform/serial8250/serial8250:0/serial8250:0.1"
DUMMY = "/devices/platform/snd_dummy.0"
# by subsystem, what has hardware, and what has none: where its link `device` leads, and the place below
REAL = {
    "sound": [f"{PCI} sound/card0/controlC0", f"{PCI}/skl_hda sound/card1/controlC1"],
    "tty": [f"{UART} tty/ttyS0", "/devices/platform/fe201000.serial tty/ttyAMA0"],
    "input": ["/devices/platform/i8042/serio0/input/input3 event3"],
    "drm": [f"{PCI} drm/card0"],
    "video4linux": ["/devices/platform/soc/unicam video4linux/video0"],
    "media": [f"{PCI} media0"],
}
VIRTUAL = {
    "sound": ["/devices/virtual/sound/timer", "/devices/virtual/sound/seq", f"{DUMMY} sound/card7/controlC7"],
    "tty": ["/devices/virtual/tty/tty1", f"{OLD_UART} tty/ttyS1"],
    "input": ["/devices/virtual/input/mice", "/devices/virtual/input/input9 event9"],
    "drm": ["/devices/faux/vkms drm/card9", "/devices/platform/vgem drm/card8"],
    "video4linux": ["/devices/virtual/video4linux/video9"],
    "media": ["/devices/platform/vimc.0 media9"],
}
BUSES = {
    PCI: "pci",
    f"{PCI}/skl_hda": "platform",
    UART: "pnp",
    "/devices/platform/i8042": "platform",
    "/devices/platform/i8042/serio0": "serio",
    DUMMY: "platform",
    "/devices/platform/serial8250": "platform",
    OLD_UART: "serial-base",
    "/devices/faux/vkms": "faux",
    "/devices/platform/vgem": "platform",
    "/devices/platform/vimc.0": "platform",
}


def populate(host: FakeSysfs, members: dict[str, list[str]]) -> dict[str, set[str]]:
    """Make these devices, with the buses that the kernel has them on. Returns the names of their files by subsystem."""
    for subsystem, texts in members.items():
        for text in texts:
            place, number = text.replace(" ", "/"), len(list(host.sys("/dev/char").iterdir())) + 1
            host.node(place, subsystem, f"{number}:0", parent=text.rpartition(" ")[0])
            for path, bus in BUSES.items():
                if place.startswith(f"{path}/") and not (host.sys(path) / "subsystem").is_symlink():
                    host.sys_link(f"{path}/subsystem", f"/bus/{bus}")
    for path in ("/devices/platform/fe201000.serial/of_node", "/devices/platform/soc/of_node"):
        host.sys(path).mkdir(parents=True, exist_ok=True)
    for port, kind in ((f"{OLD_UART}/tty/ttyS1", "0"), (f"{UART}/tty/ttyS0", "4")):
        if host.sys(port).exists():
            (host.sys(port) / "type").write_text(f"{kind}\n")
    return {name: {f"/dev/{Path(text.replace(' ', '/')).name}" for text in texts} for name, texts in members.items()}


def given(selecting: Selecting) -> set[str]:
    return {file for files in selecting.files().values() for file in files}


@pytest.mark.parametrize("subsystem", REAL)
def test_what_has_no_hardware_is_no_device_by_its_subsystem(host: FakeSysfs, subsystem: str) -> None:
    real, virtual = populate(host, REAL)[subsystem], populate(host, VIRTUAL)[subsystem]
    assert given(Selecting(host, {"subsystems": [subsystem]})) == real
    for number in range(1, 30):
        host.udev(f"c{number}:0", ID_ANY="yes")
    named = Selecting(host, {"subsystems": [subsystem], "udev": {"ID_ANY": "yes"}})
    assert given(named) == real | virtual, "udev names them"


def test_a_serial_port_of_a_machine_without_firmware(host: FakeSysfs) -> None:
    """The kernel has found a chip for one, and none for the other."""
    ports = {"ttyS0": "4", "ttyS1": "0"}
    for number, (name, kind) in enumerate(ports.items()):
        place = f"/devices/platform/serial8250/tty/{name}"
        host.node(place, "tty", f"4:{64 + number}", parent="/devices/platform/serial8250")
        (host.sys(place) / "type").write_text(f"{kind}\n")
    host.node(f"{PCI}/sound/card0", "sound", "116:1")
    host.sys_link(f"{PCI}/subsystem", "/bus/pci")
    (host.sys(f"{PCI}/sound/card0") / "type").write_text("0\n")
    assert given(Selecting(host, {"subsystems": ["tty", "sound"]})) == {"/dev/ttyS0", "/dev/card0"}


def selecting(host: FakeSysfs, *selects: dict[str, Any]) -> GenericSource:
    return source_of(host.root, *({"select": select} for select in selects))


@pytest.mark.parametrize(
    ("select", "said"),
    [
        (
            {"usb": {"vendor": "10c4", "product": "ea60"}},
            "no USB device has vendor 10c4, product ea60; present: 0403:6001 (serial A5XK3RJT, port 1-1.2), 05e3:0610 (port 1-1); "
            "connect",
        ),
        (
            {"usb": {"vendor": "05e3"}},
            "no device file is in a subsystem other than usb; present: usb (/dev/bus/usb/001/002); ",
        ),
        (
            {"subsystems": ["video"]},
            "no device file is in video; present: usb (/dev/bus/usb/001/002), hidraw (/dev/hidraw0), tty (/dev/ttyUSB0), "
            "sound (/dev/timer); ",
        ),
        (
            {"subsystems": ["sound"]},
            "no device of sound has hardware, and one without is named by paths or select.udev; present: /dev/timer; ",
        ),
        (
            {"udev": {"ID_SERIAL": "Other_*"}},
            "no device file has ID_SERIAL=Other_*; present: /dev/ttyUSB0 with ID_SERIAL=FTDI_A; ",
        ),
    ],
)
def test_a_selection_of_nothing_names_what_is_present(host: FakeSysfs, select: dict[str, Any], said: str) -> None:
    host.node(host.usb("1-1", "05e3", "0610"), "usb", "189:1", name="bus/usb/001/002")
    # its path in sysfs is below the hub's
    host.dongle("1-1.2", 0, serial="A5XK3RJT")
    host.node("/devices/virtual/sound/timer", "sound", "116:33")
    host.udev("c188:0", ID_SERIAL="FTDI_A")
    for number in ("c240:0", "c116:33"):
        host.udev(number)
    source = selecting(host, select)
    reason, message = source.devices.trouble
    assert (reason, source.devices.latest) == ("NoMatch", ())
    assert message.startswith(f"select matches nothing: {said}"), message
    assert message.endswith("connect the device, or correct select")


def test_while_something_is_listed_or_expected_nothing_is_said(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    assert selecting(host, {"usb": {"vendor": "ffff"}}, DONGLES).devices.trouble == ("", "")
    # udevd has yet to write what it is
    host.unplug("1-1")
    source = selecting(host, {"udev": {"ID_SERIAL": "X"}})
    host.dongle("1-2", 1, serial="B")
    source.refresh()
    assert source.devices.trouble == ("", "")


def test_what_is_present_is_bounded(host: FakeSysfs) -> None:
    for number in range(1, 40):
        host.dongle(f"1-{number}", number, serial="S" * 300)
    message = selecting(host, {"usb": {"vendor": "ffff"}}).devices.trouble[1]
    assert message.count("0403:6001") == 5
    many = selecting(host, *({"usb": {"port": f"9-{number}"}} for number in range(9))).devices.trouble[1]
    assert many.count("select matches nothing") == 3
    assert ", …;" in message
    assert len(message) < 700
    assert len(selecting(host, {"usb": {"serial": "x" * 4000}}).devices.trouble[1]) < 1000


def test_a_selected_device_names_the_files_that_dev_lacks(host: FakeSysfs) -> None:
    host.dongle("1-1", 0, serial="A")
    host.dongle("1-2", 1, serial="B")
    (host.root / "dev/ttyUSB1").unlink()
    source = selecting(host, DONGLES)
    assert [device.id for device in source.devices.latest] == ["0403-6001-A"]
    assert source.devices.trouble[0] == "IncompleteDevice"
    assert "0403-6001-B lacks /dev/ttyUSB1:" in source.devices.trouble[1]
