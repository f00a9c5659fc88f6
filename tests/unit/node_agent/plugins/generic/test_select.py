"""Devices that groups select, from fake sysfs trees on disk."""

from typing import Any

import msgspec
import pytest
from nodedevice_agent.plugins.generic.devices import GenericDevice, generic_devices
from nodedevice_agent.plugins.generic.found import FoundFunction
from nodedevice_agent.plugins.generic.offers import choose
from nodedevice_agent.plugins.generic.scan import SelectScan
from nodedevice_agent.plugins.generic.settings import GroupSettings

from tests.fakes.sysfs import FakeSysfs

DONGLES = {"usb": {"vendor": "0403", "product": "6001"}}


class Selecting:
    """A scan with one group or several, and a clock that stands still."""

    def __init__(self, host: FakeSysfs, *selects: dict[str, Any]) -> None:
        self.groups = [msgspec.convert({"select": select}, GroupSettings) for select in selects]
        self.select = SelectScan("example.com/device", str(host.root))
        self.now = 100.0

    def found(self) -> dict[int, list[FoundFunction]]:
        return self.select.scan(self.groups, self.now)

    def devices(self) -> dict[str, GenericDevice]:
        return generic_devices(self.groups, choose(self.groups, {}, self.found()).listed)

    def files(self) -> dict[str, list[str]]:
        return {name: [file.host_path for file in its.allocation.device_nodes] for name, its in self.devices().items()}


@pytest.mark.parametrize(
    ("usb", "is_found"),
    [
        ({"vendor": "0403"}, True),
        ({"product": "6001"}, True),
        ({"serial": "A5*"}, True),
        ({"serial": "a5*"}, False),
        ({"port": "1-2.*"}, True),
        ({"port": "1-2"}, False),
        ({"vendor": "0403", "serial": "B*"}, False),
        ({"vendor": "0404"}, False),
    ],
)
def test_all_that_is_set_must_match(host: FakeSysfs, usb: dict[str, str], is_found: bool) -> None:
    host.dongle("1-2.3", 0, serial="A5XK3RJT")
    assert bool(Selecting(host, {"usb": usb}).files()) == is_found


def test_upper_case_digits_mean_the_same(host: FakeSysfs) -> None:
    host.node(f"{host.usb('1-1', '046d', '08e5', 'X1')}/1-1:1.0/video4linux/video0", "video4linux", "81:0")
    assert list(Selecting(host, {"usb": {"vendor": "046D", "product": "08E5"}}).files()) == ["046d-08e5-X1"]


def test_a_disk_and_its_partitions_are_one_device(host: FakeSysfs) -> None:
    pci = "/devices/pci0000:00/0000:01:00.0"
    disk = f"{pci}/nvme/nvme0/nvme0n1"
    host.node(f"{pci}/nvme/nvme0", "nvme", "240:0", parent=pci)
    host.node(disk, "block", "259:0", parent=f"{pci}/nvme/nvme0")
    host.node(f"{disk}/nvme0n1p1", "block", "259:1", partition=1)
    [files] = Selecting(host, {"subsystems": ["block", "nvme"]}).files().values()
    assert files == ["/dev/nvme0", "/dev/nvme0n1", "/dev/nvme0n1p1"]


@pytest.mark.parametrize("serial", ["a b", "A-1", "port-1-2", "é\t", "x" * 300, "../../etc", "-"])
def test_an_odd_serial_becomes_a_good_id(host: FakeSysfs, serial: str) -> None:
    host.dongle("1-1", 0, serial=serial)
    [name] = Selecting(host, DONGLES).files()
    assert name.startswith("0403-6001")
    assert len(name) <= 59
    assert name.replace("-", "").replace(".", "").replace("_", "").isalnum()


def test_hubs_in_hubs_are_not_their_devices(host: FakeSysfs) -> None:
    depth = "1-1.2.3.4.5.6"
    for port in ("1-1", "1-1.2", "1-1.2.3", "1-1.2.3.4", "1-1.2.3.4.5"):
        host.node(host.usb(port, "05e3", "0610", "HUB"), "usb", f"189:{len(port)}", name=f"bus/usb/001/{len(port):03}")
    host.dongle(depth, 0)
    assert list(Selecting(host, DONGLES).files()) == [f"0403-6001-port-{depth}"]
    # what a hub's own files are, without those of what is plugged in
    assert Selecting(host, {"usb": {"vendor": "05e3"}}).files() == {}
    hubs = Selecting(host, {"usb": {"vendor": "05e3"}, "subsystems": ["usb"]}).files()
    assert [len(files) for files in hubs.values()] == [1] * 5
