"""A scan in which some path cannot be read: what was found counts as found, and of the rest nothing is another device's."""

import errno
from pathlib import Path

import pytest
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, ContainerAllocation, PluginDevice
from nodedevice_agent.plugins.generic.devices import GenericDevice
from nodedevice_agent.plugins.generic.doubt import KEPT_SECONDS, confirmed
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings, SelectSettings, UsbSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_api.names import Reason

from tests.fakes.sysfs import FakeSysfs
from tests.unit.node_agent.plugins.generic.sources import source_of
from tests.unit.node_agent.plugins.generic.test_unread import Clock, failing
from tests.unit.node_agent.plugins.generic.test_unread import clock as clock

TTYS = GroupSettings([PathSettings("/dev/ttyUSB*")])
FTDI = GroupSettings(select=SelectSettings(usb=UsbSettings(vendor="0403"), subsystems=["tty"]))
UNRELATED = "sys/dev/char/10:77"


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    """Two dongles, A with a serial, and a file that a scan comes by, and that nothing needs."""
    found = FakeSysfs(tmp_path)
    found.dongle("1-1", 0, "A")
    found.dongle("1-2", 1, "B")
    (tmp_path / UNRELATED).symlink_to("x")
    return found


def serials(source: GenericSource) -> dict[str, str]:
    """By listed ID: whose serial it means."""
    return {
        device.id: next(token.split("/")[2].split(":")[2] for token in device.identity if token.startswith("/usb/"))
        for device in source.devices.latest
    }


def files(source: GenericSource, device_id: str) -> list[str]:
    return [node.host_path for node in source.allocate([device_id], None).device_nodes]


def all_files(source: GenericSource) -> dict[str, list[str]]:
    return {device.id: files(source, device.id) for device in source.devices.latest}


def scan(source: GenericSource, root: Path, path: str, call: str = "readlink") -> None:
    with failing(root / path, call, errno.EIO):
        source.refresh()


class TestAnUnrelatedFile:
    """It cannot be read, and no device is affected by it."""

    @pytest.mark.parametrize("group", [TTYS, FTDI])
    def test_what_was_found_counts_as_found(self, host: FakeSysfs, clock: Clock, group: GroupSettings) -> None:
        """Two dongles change places: each ID means what it is now."""
        source = source_of(host.root, group)
        for port in ("1-1", "1-2"):
            host.unplug(port)
        host.dongle("1-1", 0, "B")
        host.dongle("1-2", 1, "A")
        scan(source, host.root, UNRELATED)
        assert source.devices.unconfirmed == {}
        fresh = source_of(host.root, group)
        assert (source.devices.latest, all_files(source)) == (fresh.devices.latest, all_files(fresh))

    def test_a_missing_device_is_kept_and_not_allocated(self, host: FakeSysfs, clock: Clock) -> None:
        source = source_of(host.root, TTYS)
        host.unplug("1-1")
        scan(source, host.root, UNRELATED)
        assert serials(source) == {"ttyUSB0": "A", "ttyUSB1": "B"}
        assert [*source.devices.unconfirmed] == ["ttyUSB0"]
        with pytest.raises(AllocationRefused, match=r"ttyUSB0 is not confirmed: .*10:77 cannot be read"):
            source.allocate(["ttyUSB0"], None)
        assert files(source, "ttyUSB1") == ["/dev/ttyUSB1"]
        marked = {device.id: (device.is_healthy, device.reason) for device in source.devices.marked()}
        assert marked == {"ttyUSB0": (True, Reason.DEVICE_UNCONFIRMED), "ttyUSB1": (True, "")}
        assert "ttyUSB0 is not confirmed" in source.devices.trouble[1]
        # it is not there, and that is an answer
        source.refresh()
        assert serials(source) == {"ttyUSB1": "B"}

    def test_it_has_no_file_and_no_number_that_another_one_has(self, host: FakeSysfs, clock: Clock) -> None:
        """Another one was plugged in elsewhere, and has both."""
        source = source_of(host.root, FTDI)
        host.unplug("1-1")
        host.dongle("1-3", 0, "C")
        scan(source, host.root, UNRELATED)
        assert sorted(serials(source).values()) == ["A", "B", "C"]
        kept = next(d for d in source.devices.latest if d.id in source.devices.unconfirmed)
        assert (kept.files, "c188:0" in kept.identity) == ((), False)
        assert "/usb/0403:6001:A/1.0/ttyUSB#0/tty/ttyUSB#0" in kept.identity

    @pytest.mark.parametrize("count", [1, 2])
    def test_a_missing_device_whose_id_another_has_is_counted(self, host: FakeSysfs, clock: Clock, count: int) -> None:
        """B has gone on to the name of A, which is not found."""
        source = source_of(host.root, replace(TTYS, count=count))
        for port in ("1-1", "1-2"):
            host.unplug(port)
        host.dongle("1-2", 0, "B")
        for _ in range(2):
            scan(source, host.root, UNRELATED)
            assert sorted(serials(source).values()) == sorted("AB" * count)
            assert {serials(source)[i] for i in source.devices.unconfirmed} == {"A"}
            assert all(i.startswith("ttyUSB0-") for i in source.devices.unconfirmed)
        clock.now += KEPT_SECONDS
        scan(source, host.root, UNRELATED)
        assert {*serials(source).values()} == {"B"}

    def test_after_a_minute_it_is_gone(self, host: FakeSysfs, clock: Clock) -> None:
        """Also where it is another file every time that cannot be read."""
        source = source_of(host.root, TTYS)
        host.unplug("1-1")
        for number in range(3):
            (host.root / f"sys/dev/char/10:{80 + number}").symlink_to("x")
            scan(source, host.root, f"sys/dev/char/10:{80 + number}")
            assert "ttyUSB0" in serials(source)
            clock.now += KEPT_SECONDS / 3
        scan(source, host.root, UNRELATED)
        assert serials(source) == {"ttyUSB1": "B"}


def test_a_device_of_a_group_that_is_listed_by_another_one_is_not_missing() -> None:
    """Of an IOMMU group, whose devices only one process can have: another one was bound, and stands for all."""
    before, now = (
        GenericDevice(PluginDevice(name, identity=(f"/lasting/{name}", "pair:iommu:1:vfio")), ContainerAllocation())
        for name in ("nic", "gpu")
    )
    found = confirmed({"nic": before}, {"gpu": now}, {}, 0.0, is_doubtful=True)
    assert (found.listed, found.ids) == ({"gpu": now}, set())


PLUG = "sys/devices/pci0000:00/0000:00:14.0/usb1/1-1"
# of a device that is known to be the same plug as before, and of one that may be another one by now
OF_THE_SAME = [(f"{PLUG}/serial", "open"), (f"{PLUG}/idVendor", "open")]
OF_ANY = [(f"{PLUG}/devnum", "open"), ("sys/bus/usb/devices/1-1", "readlink")]


class TestAFileOfOneDevice:
    """It cannot be read which device it is: all others are as ever."""

    @pytest.mark.parametrize(("path", "call"), OF_THE_SAME)
    @pytest.mark.parametrize("group", [TTYS, FTDI])
    def test_the_same_plug_stays_as_it_was(
        self, host: FakeSysfs, clock: Clock, group: GroupSettings, path: str, call: str
    ) -> None:
        """It is allocated as before, however long that lasts."""
        source = source_of(host.root, group)
        before = all_files(source)
        with failing(host.root / path, call, errno.EIO):
            for _ in range(2):
                source.refresh()
                assert source.devices.unconfirmed == {}
                assert all(device.is_healthy for device in source.devices.latest)
                assert all_files(source) == before
                assert path in source.devices.trouble[1]
                clock.now += KEPT_SECONDS
        source.refresh()
        assert path not in source.devices.trouble[1]

    @pytest.mark.parametrize(("path", "call"), OF_THE_SAME)
    @pytest.mark.parametrize("group", [TTYS, FTDI])
    def test_another_plug_in_its_port_is_not_taken_for_it(
        self, host: FakeSysfs, clock: Clock, group: GroupSettings, path: str, call: str
    ) -> None:
        source = source_of(host.root, group)
        (before,) = [device_id for device_id, serial in serials(source).items() if serial == "A"]
        host.unplug("1-1")
        host.dongle("1-1", 0, "C")
        scan(source, host.root, path, call)
        assert [*source.devices.unconfirmed] == [before]
        with pytest.raises(AllocationRefused, match=f"{before} is not confirmed"):
            source.allocate([before], None)

    @pytest.mark.parametrize(("path", "call"), OF_ANY)
    @pytest.mark.parametrize("group", [TTYS, FTDI])
    def test_one_that_may_be_another_stays_as_it_was_for_a_minute(
        self, host: FakeSysfs, clock: Clock, group: GroupSettings, path: str, call: str
    ) -> None:
        source = source_of(host.root, group)
        before = source.devices.latest
        broken = next(device_id for device_id, serial in serials(source).items() if serial == "A")
        others = [device for device in before if device.id != broken]
        with failing(host.root / path, call, errno.EIO):
            source.refresh()
            assert source.devices.latest == before
            assert [*source.devices.unconfirmed] == [broken]
            clock.now += KEPT_SECONDS
            source.refresh()
            assert [device for device in source.devices.latest if device.is_healthy] == others
            assert source.devices.unconfirmed == {}
        source.refresh()
        assert source.devices.latest == before

    @pytest.mark.parametrize(("path", "call"), [*OF_THE_SAME, *OF_ANY])
    def test_a_new_one_is_not_allocated(self, host: FakeSysfs, clock: Clock, path: str, call: str) -> None:
        with failing(host.root / path, call, errno.EIO):
            source = source_of(host.root, TTYS)
            assert [*source.devices.unconfirmed] == ["ttyUSB0"]
            clock.now += KEPT_SECONDS
            source.refresh()
            (sick,) = [device for device in source.devices.latest if not device.is_healthy]
            assert (sick.id, sick.reason) == ("ttyUSB0", "Unread")
        source.refresh()
        assert all(device.is_healthy for device in source.devices.latest)


def test_a_device_without_a_place_in_sysfs_is_as_ever(host: FakeSysfs, clock: Clock) -> None:
    """Such as NVIDIA's: its number is all that is known of it, also while something else cannot be read."""
    (host.root / "dev/thing0").symlink_to("/dev/null")
    source = source_of(host.root, GroupSettings([PathSettings("/dev/thing*")]))
    scan(source, host.root, UNRELATED)
    assert [device.id for device in source.devices.latest] == ["thing0"]
    assert source.devices.unconfirmed == {}
