"""One device is listed once, and is the same device in each resource, by whatever name and way its groups find it."""

from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.identity_index import Index
from nodedevice_agent.lib.deviceplugin_server.values import PluginDevice

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import paths, source_of

BY_ID = "/dev/serial/by-id/usb-FTDI_S-if00-port0"
BY_PATH = "/dev/serial/by-path/pci-0000:00:14.0-usb-0:1:1.0-port0"
# systemd of 254 and later makes both
BY_PATH_2 = "/dev/serial/by-path/pci-0000:00:14.0-usbv2-0:1:1.0-port0"


def select(**values: Any) -> dict[str, Any]:
    return {"select": {"subsystems": ["tty"], **values}}


WAYS = {
    "path": paths("/dev/ttyUSB0"),
    "pattern": paths("/dev/ttyUSB*"),
    "by-id": paths(BY_ID),
    "by-id pattern": paths("/dev/serial/by-id/*"),
    "by-path": paths(BY_PATH),
    "other by-path": paths(BY_PATH_2),
    "by-path pattern": paths("/dev/serial/by-path/*"),
    "all links": paths("/dev/serial/*/*"),
    "a link of one's own": paths("/dev/mine"),
    "link to a link": paths("/dev/theirs"),
    "subsystem": select(),
    "vendor": select(usb={"vendor": "0403"}),
    "serial": select(usb={"serial": "S"}),
    "port": select(usb={"port": "1-1"}),
    "port and serial": select(usb={"port": "1-1", "serial": "S"}),
    "udev": select(udev={"ID_SERIAL": "FTDI_*"}),
}


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    """With one serial adapter."""
    host = FakeSysfs(tmp_path)
    usb = host.usb("1-1", "0403", "6001", "S")
    adapter(host, usb, 0)
    host.node(usb, "usb", "189:3", name="bus/usb/001/004")
    for link in (BY_ID, BY_PATH, BY_PATH_2, "/dev/mine"):
        host.link(link, "/dev/ttyUSB0")
    host.link("/dev/theirs", "/dev/mine")
    host.udev("c188:0", ID_SERIAL="FTDI_S")
    return host


def adapter(host: FakeSysfs, usb: str, number: int) -> None:
    place = f"{usb}/{usb.rpartition('/')[2]}:1.0/ttyUSB{number}"
    host.node(f"{place}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=place)


def listed(host: FakeSysfs, *groups: dict[str, Any]) -> tuple[PluginDevice, ...]:
    return source_of(host.root, *groups).devices.latest


def ids(host: FakeSysfs, *groups: dict[str, Any]) -> list[str]:
    return [device.id for device in listed(host, *groups)]


def are_same(one: PluginDevice, other: PluginDevice) -> bool:
    known = Index[int]()
    known.add(0, one.identity)
    return bool([*known.related(other.identity)])


@pytest.mark.parametrize(("first", "second"), [*product(WAYS, repeat=2)])
def test_one_device_in_one_resource(host: FakeSysfs, first: str, second: str) -> None:
    if first == second:
        assert len(listed(host, WAYS[first])) == 1
        return
    [device] = listed(host, WAYS[first], WAYS[second])
    [alone] = listed(host, WAYS[first])
    [other] = listed(host, WAYS[second])
    assert device.id == alone.id, "the first group has it"
    # by whichever of its IDs it is held
    assert {alone.id, *alone.aliases, other.id, *other.aliases} == {device.id, *device.aliases}


@pytest.mark.parametrize(("first", "second"), [*combinations_with_replacement(WAYS, 2)])
def test_one_device_in_two_resources(host: FakeSysfs, first: str, second: str) -> None:
    [one], [other] = listed(host, WAYS[first]), listed(host, WAYS[second])
    assert are_same(one, other)
    assert [number for _, number in one.files] == ["c188:0"]


@pytest.mark.parametrize("way", [way for way in WAYS if way != "port"])
def test_its_identity_is_the_same_by_all_names(host: FakeSysfs, way: str) -> None:
    [device] = listed(host, WAYS[way])
    place = "/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/ttyUSB0/tty/ttyUSB0"
    lasting = "1.0/ttyUSB#0/tty/ttyUSB#0"
    assert device.identity == (place, f"/port/1-1/{lasting}", f"/usb/0403:6001:S/{lasting}", "c188:0")
    assert not device.is_shared


@pytest.mark.parametrize("way", WAYS)
def test_raw_access_is_the_same_device(host: FakeSysfs, way: str) -> None:
    raw = paths("/dev/bus/usb/001/004")
    [one], [other] = listed(host, WAYS[way]), listed(host, raw)
    assert are_same(one, other)
    # one in a resource, and none of it is the other's alias: its files are others
    source = source_of(host.root, WAYS[way], raw)
    [device] = source.devices.latest
    assert other.id not in device.aliases
    reason, message = source.devices.trouble
    assert f"{other.id}, the same device as {one.id}" in message
    assert (reason, "name its files in one group" in message) == ("SameDevice", True)


def test_a_plain_path_beside_a_wildcard_makes_none_of_them_the_same(host: FakeSysfs) -> None:
    adapter(host, "/devices/pci0000:00/0000:00:14.0/usb1/1-1", 1)
    host.node("/devices/virtual/misc/codec", "misc", "10:5")
    one, other = listed(host, paths("/dev/codec", "/dev/ttyUSB*"))
    assert not are_same(one, other)
    assert [path for path, _ in (*one.files, *other.files)] == ["/dev/ttyUSB0", "/dev/ttyUSB1"]
    [codec] = listed(host, paths("/dev/codec"))
    assert not are_same(one, codec)


def test_an_optional_file_of_its_own(host: FakeSysfs) -> None:
    host.node("/devices/platform/led0", "misc", "10:6", name="led0")
    lamp = {"path": "/dev/led*", "optional": True}
    [device] = listed(host, {"paths": [{"path": "/dev/ttyUSB*"}, lamp]})
    assert device.files == (("/dev/led0", "c10:6"), ("/dev/ttyUSB0", "c188:0"))
    assert "c10:6" in device.identity
    # a plain one may be in several devices
    [device] = listed(host, {"paths": [{"path": "/dev/ttyUSB0"}, {**lamp, "path": "/dev/led0"}]})
    assert device.files == (("/dev/ttyUSB0", "c188:0"),)
    assert "c10:6" not in device.identity


def test_a_file_that_comes_with_devices_is_none(host: FakeSysfs) -> None:
    host.node("/devices/virtual/misc/fuse", "misc", "10:229")
    host.node("/devices/virtual/vfio/vfio", "misc", "10:196", name="vfio/vfio")
    for number in (7, 8):
        host.node(f"/devices/virtual/vfio/{number}", "vfio", f"243:{number}", name=f"vfio/{number}")
    [fuse] = listed(host, paths("/dev/fuse"))
    assert (fuse.identity, fuse.files) == ((), ())
    # in one resource it is listed once all the same
    assert len(listed(host, paths("/dev/fuse"), paths("/dev/fus*"))) == 1
    host.link("/dev/mine-too", "/dev/fuse")
    [fuse] = listed(host, paths("/dev/fuse"), paths("/dev/mine-too"))
    assert fuse.aliases == ("mine-too",)
    one, other = listed(host, paths("/dev/vfio/7", "/dev/vfio/vfio"), paths("/dev/vfio/8", "/dev/vfio/vfio"))
    assert one.files == (("/dev/vfio/7", "c243:7"),)
    assert one.identity == ("/devices/virtual/vfio/7", "/lasting/devices/virtual/vfio/7", "c243:7", "pair:iommu:7:vfio")
    assert not are_same(one, other)


def test_a_file_that_is_mounted_is_a_device_as_well(host: FakeSysfs) -> None:
    (host.root / "dev/plain").touch()
    host.link("/dev/other", "/dev/plain")
    [device] = listed(host, paths("/dev/plain", allowFiles=True), paths("/dev/other", allowFiles=True))
    assert (device.identity, device.files, device.aliases) == (("path:/dev/plain",), (), ("other",))


def test_a_disk_is_not_given_for_its_partition(host: FakeSysfs) -> None:
    disk = "/devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda"
    host.node(disk, "block", "8:0")
    for number in (1, 2):
        host.node(f"{disk}/sda{number}", "block", f"8:{number}")
    source = source_of(host.root, paths("/dev/sd*"))
    [device] = source.devices.latest
    assert (device.id, device.aliases) == ("sda", ())
    assert "sda1, the same device as sda; sda2, the same device as sda: name its files" in source.devices.trouble[1]
    assert ids(host, paths("/dev/sda?")) == ["sda1", "sda2"]
    # beside both partitions the disk is neither of them
    source = source_of(host.root, paths("/dev/sda?"), paths("/dev/sda"))
    assert [(device.id, device.aliases) for device in source.devices.latest] == [("sda1", ()), ("sda2", ())]


def test_other_files_of_a_device_with_one_id(host: FakeSysfs) -> None:
    host.dongle("1-4", 4, serial="D")
    groups = [{"select": {"usb": {"serial": "D"}, "subsystems": [name]}} for name in ("hidraw", "tty")]
    source = source_of(host.root, *groups)
    [device] = source.devices.latest
    assert [path for path, _ in device.files] == ["/dev/hidraw4"]
    reason, message = source.devices.trouble
    assert "0403-6001-D of groups[1], as groups[0] has other files of it: name its files in one group" in message
    assert reason == "SameDevice"


SHARED: dict[str, Any] = {"shared": {"shared": True}, "count": {"count": 2}, "both": {"shared": True, "count": 2}}


@pytest.mark.parametrize("how", SHARED)
@pytest.mark.parametrize(("first", "second"), [("path", "by-id"), ("port", "pattern"), ("by-path pattern", "serial")])
@pytest.mark.parametrize("is_shared_first", [True, False])
def test_a_shared_device_beside_an_exclusive_one(
    host: FakeSysfs, how: str, first: str, second: str, is_shared_first: bool
) -> None:
    shared, exclusive = {**WAYS[first], **SHARED[how]}, WAYS[second]
    groups = [shared, exclusive] if is_shared_first else [exclusive, shared]
    source = source_of(host.root, *groups)
    [device] = source.devices.latest
    [alone] = listed(host, exclusive)
    assert (device.id, device.is_shared) == (alone.id, False)
    reason, message = source.devices.trouble
    which = "groups[0], as groups[1]" if is_shared_first else "groups[1], as groups[0]"
    assert which in message
    assert f"({device.id})" in message
    assert (reason, "set shared: true in both" in message) == ("NotShared", True)


@pytest.mark.parametrize("how", SHARED)
def test_shared_devices(host: FakeSysfs, how: str) -> None:
    devices = listed(host, {**WAYS["path"], **SHARED[how]}, {**WAYS["by-id"], **SHARED[how]})
    assert [device.id for device in devices] == (["ttyUSB0"] if how == "shared" else ["ttyUSB0::0", "ttyUSB0::1"])
    [link] = ids(host, WAYS["by-id"])
    for device in devices:
        assert (device.is_shared, "c188:0" in device.identity) == (True, True)
        assert device.aliases == (f"{link}{device.id.removeprefix('ttyUSB0')}",)


def test_a_shared_file_with_each_of_two_devices(host: FakeSysfs) -> None:
    adapter(host, "/devices/pci0000:00/0000:00:14.0/usb1/1-1", 1)
    host.node("/devices/virtual/misc/lamp", "misc", "10:5")
    groups = [paths(f"/dev/ttyUSB{number}", "/dev/lamp") for number in (0, 1)]
    assert ids(host, *groups) == ["ttyUSB0"]
    assert ids(host, *({**group, "shared": True} for group in groups)) == ["ttyUSB0", "ttyUSB1"]


def test_an_id_of_other_files_is_no_alias(host: FakeSysfs) -> None:
    raw = {"select": {"usb": {"port": "1-1"}, "subsystems": ["usb"]}}
    assert "usb-port-1-1" in listed(host, WAYS["vendor"])[0].aliases
    [device] = listed(host, WAYS["vendor"], raw)
    assert (device.id, device.aliases) == ("0403-6001-S", ("0403-6001-port-1-1",))
