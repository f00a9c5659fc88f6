"""Any groups on a host with all kinds of devices: no two listed devices are one, and each ID leads to one device."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_agent.identity_index import Index
from nodedevice_agent.lib.config_rules import plugins_problems
from nodedevice_agent.plugins.generic.settings import GenericSettings

from tests.examples import examples
from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import source_of

DISK = "/devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0"
GPU = "/devices/pci0000:00/0000:01:00.0"

PATHS = (
    "ttyUSB0", "ttyUSB1", "ttyUSB*", "hidraw*", "hidraw0", "serial/by-id/*", "serial/by-id/usb-A", "serial/*/*", "bus/usb/*/*",
    "bus/usb/001/001", "sd*", "sda", "sda1", "sda?", "sg0", "sg*", "disk/by-id/*", "dri/*", "dri/card0", "dri/renderD*", "fuse",
    "fus*", "vfio/*", "vfio/7", "*",
)  # fmt: skip
SELECTS: tuple[dict[str, Any], ...] = (
    {"usb": {"vendor": "0403"}},
    {"usb": {"vendor": "0403"}, "subsystems": ["tty"]},
    {"usb": {"serial": "A"}},
    {"usb": {"port": "1-2.*"}},
    {"usb": {"port": "1-2.1"}, "subsystems": ["hidraw"]},
    {"usb": {"port": "*"}, "subsystems": ["usb"]},
    {"subsystems": ["tty"]},
    {"subsystems": ["block"]},
    {"subsystems": ["block", "scsi_generic"]},
    {"subsystems": ["drm"]},
    {"subsystems": ["misc"]},
    {"udev": {"ID_SERIAL": "*"}},
)
path = st.builds(lambda name, opt: {"path": f"/dev/{name}", "optional": opt}, st.sampled_from(PATHS), st.booleans())
paths = st.lists(path, min_size=1, max_size=3)
ways = st.one_of(
    st.builds(lambda each: {"paths": each}, paths), st.builds(lambda each: {"select": each}, st.sampled_from(SELECTS))
)
group = st.builds(lambda way, more: {**way, **more}, ways, st.sampled_from([{}, {}, {"shared": True}, {"count": 2}]))
groups = st.lists(group, min_size=1, max_size=5)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> FakeSysfs:
    host = FakeSysfs(tmp_path_factory.mktemp("host"))
    host.node(host.usb("1-2", "05e3", "0610", "HUB"), "usb", "189:0", name="bus/usb/001/001")
    serials = {"1-2.1": "A", "1-2.2": "B", "1-3": "0001", "1-4": "0001", "1-5": None}
    for number, (port, serial) in enumerate(serials.items()):
        usb = host.dongle(port, number, serial=serial)
        host.node(usb, "usb", f"189:{number + 1}", name=f"bus/usb/001/00{number + 2}")
        host.udev(f"c188:{number}", ID_SERIAL=f"FTDI_{serial}")
    for name, file in (("by-id/usb-A", "ttyUSB0"), ("by-path/usb-0", "ttyUSB0"), ("by-path/usbv2-0", "ttyUSB0")):
        host.link(f"/dev/serial/{name}", f"/dev/{file}")
    host.node(f"{DISK}/block/sda", "block", "8:0", parent=DISK)
    for number in (1, 2):
        host.node(f"{DISK}/block/sda/sda{number}", "block", f"8:{number}", partition=number)
    host.node(f"{DISK}/scsi_generic/sg0", "scsi_generic", "21:0", parent=DISK)
    for name, file in (("ata-X", "sda"), ("wwn-X", "sda"), ("ata-X-part1", "sda1")):
        host.link(f"/dev/disk/by-id/{name}", f"/dev/{file}")
    for number, name in enumerate(("card0", "renderD128")):
        host.node(f"{GPU}/drm/{name}", "drm", f"226:{number}", parent=GPU, name=f"dri/{name}")
    host.node("/devices/virtual/misc/fuse", "misc", "10:229")
    host.node("/devices/virtual/misc/vfio", "misc", "10:196", name="vfio/vfio")
    host.node("/devices/virtual/vfio/7", "vfio", "243:7", name="vfio/7")
    return host


@settings(max_examples=examples(400))
@given(raw=groups)
def test_each_device_once(host: FakeSysfs, raw: list[dict[str, Any]]) -> None:
    resource = {"resourceName": "example.com/x", "groups": raw}
    if plugins_problems({"generic": [resource]}, []):
        return
    wanted = msgspec.convert(resource, GenericSettings)
    source = source_of(host.root, *wanted.groups)
    devices = source.devices.latest
    ids = Counter(name for device in devices for name in (device.id, *device.aliases))
    assert not [name for name, count in ids.items() if count > 1]
    for device in devices:
        # no device is the same as an exclusive one
        known = Index[int]()
        known.add(0, device.identity)
        same = [other for other in devices if other is not device and [*known.related(other.identity)]]
        assert device.is_shared or not same
        assert all(other.is_shared for other in same)
        given = {node.host_path for node in source.allocate([device.id], None).device_nodes}
        assert {path for path, _ in device.files} <= given
        numbers = {number for _, number in device.files}
        assert numbers <= set(device.identity)
    each_alone = [device for each in wanted.groups for device in source_of(host.root, each).devices.latest]
    alone = {device.id: {number for _, number in device.files} for device in each_alone}
    by_alias = {alias: device for device in devices for alias in device.aliases}
    for name, numbers in alone.items():
        # whoever has a device by an ID that it had in its group has at least one of the files by it
        if name in by_alias and numbers:
            assert numbers & {number for _, number in by_alias[name].files}
    # and the same whatever was listed before
    assert source_of(host.root, *wanted.groups).devices.latest == devices
