"""What is read of a node: drivers, names and places in sysfs, what cannot be seen, and what is offered already."""

from pathlib import Path

import pytest
from nodedevice_agent.plugins.discovery.candidates import Facts
from nodedevice_agent.plugins.discovery.survey import hardware

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.discovery.hosts import GPU, drive, pci


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    return FakeSysfs(tmp_path / "host")


def read(host: FakeSysfs) -> Facts:
    return hardware(str(host.root))


def drivers(host: FakeSysfs) -> dict[str, str]:
    return {path: facts.driver for path, facts in read(host).files.items()}


def test_a_file_has_the_driver_that_is_nearest_to_it(host: FakeSysfs) -> None:
    place = "/devices/platform/soc/spi0.0"
    host.node(f"{place}/port0/tty/ttyS0", "tty", "4:64", parent=place)
    assert drivers(host) == {"/dev/ttyS0": ""}
    drive(host, place, "spi")
    assert drivers(host) == {"/dev/ttyS0": "spi"}
    drive(host, f"{place}/port0", "port")
    assert drivers(host) == {"/dev/ttyS0": "port"}


def test_the_drivers_of_a_usb_device_are_those_of_its_interfaces(host: FakeSysfs) -> None:
    sysfs = host.usb("1-1", "0bda", "8153")
    for number, driver in enumerate(("r8152", "", "cdc_ncm", "r8152")):
        host.sys(f"{sysfs}/1-1:1.{number}").mkdir(parents=True)
        if driver:
            drive(host, f"{sysfs}/1-1:1.{number}", driver)
    drive(host, f"{host.usb('1-1.1', '0403', '6001')}", "usb")
    assert read(host).usb_drivers == {sysfs: ("r8152", "cdc_ncm")}


def test_only_displays_and_accelerators_are_looked_for_on_the_bus(host: FakeSysfs) -> None:
    pci(host, "/devices/pci0000:00/0000:00:03.0", "8086", "1533", "igb", "020000")
    pci(host, "/devices/pci0000:00/0000:00:04.0", "1da3", "1020", its_class="120000")
    pci(host, GPU, "1002", "740f", "amdgpu")
    (host.sys("/bus/pci/devices") / "no-link").mkdir()
    found = [(each.address, each.sysfs, each.vendor, each.device, each.driver) for each in read(host).pci_devices]
    assert found == [
        ("0000:00:02.0", GPU, "1002", "740f", "amdgpu"),
        ("0000:00:04.0", "/devices/pci0000:00/0000:00:04.0", "1da3", "1020", ""),
    ]


def test_a_host_that_is_not_mounted_says_what_to_mount(tmp_path: Path) -> None:
    udev = f"{tmp_path}/run/udev/data is not there, so udev's properties are not seen (chart: agents.udev mounts it); "
    assert [*hardware(str(tmp_path)).notes] == [
        f"{tmp_path}/sys/dev/char is not there, so no device is found: mount the host's /sys, or set hostRoot (--config)",
        f"{udev}the names in /dev that udev made are",
    ]
    FakeSysfs(tmp_path)
    assert [*hardware(str(tmp_path)).notes] == []


def test_that_it_is_on_usb_is_no_driver(host: FakeSysfs) -> None:
    sysfs = host.usb("1-1", "1050", "0407")
    host.node(sysfs, "usb", "189:1", name="bus/usb/001/002")
    drive(host, sysfs, "usb")
    assert drivers(host) == {"/dev/bus/usb/001/002": ""}
    assert read(host).usb_drivers == {}
