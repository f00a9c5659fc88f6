"""Places that are the same after a replug and a boot, in which the kernel gives other numbers."""

from collections.abc import Callable, Iterable

import pytest
from nodedevice_agent.plugins.generic.functions import UsbDevice, upwards
from nodedevice_agent.plugins.generic.lasting_places import LastingPlaces

CONTROLLER = "/devices/pci0000:00/0000:00:14.0/usb1"


def of(place: str, *others: str, port: str = "1-1", serial: str = "S", own: bool = True) -> set[str]:
    """Of a file of a USB device. place, others: below the device."""
    usb = UsbDevice(f"{CONTROLLER}/{port}", port, "0781", "5583", serial)
    found = LastingPlaces(sysfs(usb.sysfs + each for each in (place, *others)))
    return {*found.of(usb.sysfs + place, usb, has_own_serial=own)}


def sysfs(places: Iterable[str]) -> Callable[[str], Iterable[str]]:
    """What is in each of these places, and in those above."""
    found: dict[str, set[str]] = {}
    for place in places:
        for above in upwards(place):
            inside, _, name = above.rpartition("/")
            found.setdefault(inside, set()).add(name)
    return lambda place: found.get(place, ())


REPLUGGED = [
    ("/1-1:1.0/host7/target7:0:0/7:0:0:0/block/sdc", "/1-1:1.0/host2/target2:0:0/2:0:0:0/block/sda"),
    ("/1-1:1.0/host7/target7:0:0/7:0:0:0/block/sdc/sdc1", "/1-1:1.0/host2/target2:0:0/2:0:0:0/block/sdaa/sdaa1"),
    ("/1-1:1.0/host7/target7:0:0/7:0:0:0/scsi_generic/sg3", "/1-1:1.0/host2/target2:0:0/2:0:0:0/scsi_generic/sg0"),
    ("/1-1:1.0/ttyUSB3/tty/ttyUSB3", "/1-1:1.0/ttyUSB0/tty/ttyUSB0"),
    ("/1-1:1.0/tty/ttyACM3", "/1-1:1.0/tty/ttyACM0"),
    ("/1-1:1.0/0003:1050:0402.0002/hidraw/hidraw1", "/1-1:1.0/0003:1050:0402.0009/hidraw/hidraw0"),
    ("/1-1:1.0/0003:1050:0402.0002/input/input9/event7", "/1-1:1.0/0003:1050:0402.0004/input/input1/event0"),
    ("/1-1:1.0/video4linux/video4", "/1-1:1.0/video4linux/video0"),
    ("/1-1:1.0/sound/card2/controlC2", "/1-1:1.0/sound/card0/controlC0"),
    ("", ""),
]


@pytest.mark.parametrize(("before", "after"), REPLUGGED)
def test_they_are_the_same_after_a_replug(before: str, after: str) -> None:
    assert of(before) == of(after)
    # in another port what is of the device itself
    elsewhere = of(after.replace("1-1:", "1-2.3:"), port="1-2.3")
    assert of(before) & elsewhere == {token for token in of(before) if token.startswith("/usb/")}
    assert of(before, serial="T") & of(after) == {token for token in of(before) if not token.startswith("/usb/")}


def test_what_is_within_another_place_still_is() -> None:
    scsi = "/1-1:1.0/host7/target7:0:0/7:0:0:0"
    [disk], [part], [device] = (
        [token for token in of(place) if token.startswith("/usb/")]
        for place in (f"{scsi}/block/sdc", f"{scsi}/block/sdc/sdc1", scsi)
    )
    assert part.startswith(f"{disk}/")
    assert disk.startswith(f"{device}/")
    assert disk.startswith(min(token for token in of("") if token.startswith("/usb/")) + "/")


@pytest.mark.parametrize(
    "siblings",
    [
        ["/1-1:1.0/video4linux/video4", "/1-1:1.0/video4linux/video5", "/1-1:1.0/video4linux/video10"],
        ["/1-1:1.0/ttyUSB3/tty/ttyUSB3", "/1-1:1.0/ttyUSB4/tty/ttyUSB4", "/1-1:1.1/ttyUSB5/tty/ttyUSB5"],
        ["/1-1:1.0/host7/target7:0:0/7:0:0:0/block/sdz", "/1-1:1.0/host7/target7:0:0/7:0:0:1/block/sdaa"],
        ["/a/block/sdc/sdc1", "/a/block/sdc/sdc2", "/a/block/sdc/sdc10", "/a/block/sdc"],
    ],
)
def test_siblings_have_places_of_their_own_in_their_order(siblings: list[str]) -> None:
    found = [of(place, *siblings) for place in siblings]
    assert len({token for tokens in found for token in tokens}) == 2 * len(siblings)
    assert found == [of(place, *reversed(siblings)) for place in siblings]


def test_a_serial_that_others_have_says_nothing_in_another_port() -> None:
    place, other = "/1-1:1.0/ttyUSB0/tty/ttyUSB0", "/1-2:1.0/ttyUSB0/tty/ttyUSB0"
    assert of(place, own=False).isdisjoint(of(other, port="1-2", own=False))
    assert of(place, serial="", own=False).isdisjoint(of(other, port="1-2", serial="", own=False))


@pytest.mark.parametrize("serial", ["a/b", "a@1-1", "a b", "a%b", "a:b", "ü"])
def test_any_serial_is_one_word(serial: str) -> None:
    [token] = [token for token in of("/x", serial=serial) if token.startswith("/usb/")]
    assert token.count("/") == 3
    assert "@" not in token
    assert of("/x", serial=serial) != of("/x", serial=serial + "x")


def lasting(place: str, others: Iterable[str] = ()) -> tuple[str, ...]:
    return LastingPlaces(sysfs([place, *others])).of(place, None, has_own_serial=False)


def test_what_is_no_usb_device() -> None:
    gpu = "/devices/pci0000:00/0000:00:02.0/drm"
    assert lasting(f"{gpu}/card1") == lasting(f"{gpu}/card0") == (f"/lasting{gpu}/card#0",)
    disk = "/devices/pci0000:00/0000:00:17.0/ata3/host{0}/target{0}:0:0/{0}:0:0:0/block/{1}"
    assert lasting(disk.format(2, "sdb")) == lasting(disk.format(0, "sda"))
    nvme = "/devices/pci0000:00/0000:01:00.0/nvme/nvme{0}/nvme{0}n1"
    assert lasting(nvme.format(1)) == lasting(nvme.format(0))
    assert lasting(nvme.format(1) + "/nvme1n1p2")[0].startswith(lasting(nvme.format(1))[0] + "/")
    assert lasting("pair:iommu:7:vfio") == ()
