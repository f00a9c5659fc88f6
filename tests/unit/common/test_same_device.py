"""Whether a stored name still leads to the device that it was stored for, for each kind of identity."""

import pytest
from nodedevice_common.same_device import (
    Sameness,
    is_lasting,
    is_moved,
    may_be_one,
    same_device,
    with_serial_alone,
)

SAME, OTHER, UNKNOWN = Sameness.SAME, Sameness.OTHER, Sameness.UNKNOWN
TTY = "1.0/ttyUSB#0/tty/ttyUSB#0"


def usb(serial: str, port: str, *, within: str = TTY, own: bool = True, number: str = "c188:0") -> tuple[str, ...]:
    """An FTDI stick in a port. own: whether no other one has its serial."""
    at = "" if own and serial else f"@{port}"
    return f"/port/{port}/{within}", f"/usb/0403:6001:{serial}{at}/{within}", number


A, B = usb("A", "1-3"), usb("B", "1-3")
TWIN, OTHER_TWIN = usb("1", "1-3", own=False), usb("1", "1-4", own=False)
BARE, ELSEWHERE = usb("", "1-3"), usb("", "1-4")

CASES = [
    pytest.param(A, A, SAME, id="nothing has changed"),
    pytest.param(A, usb("A", "2-1", number="c188:7"), SAME, id="a serial of its own, in another port"),
    pytest.param(A, B, OTHER, id="another serial, in the same port and with the same number"),
    pytest.param(A, BARE, OTHER, id="a serial, and none"),
    pytest.param(TWIN, usb("1", "1-3", own=False, number="c188:9"), SAME, id="a repeated serial, in its port"),
    pytest.param(TWIN, OTHER_TWIN, UNKNOWN, id="a repeated serial, in another port"),
    pytest.param(usb("1", "1-3"), TWIN, SAME, id="a serial that is repeated by now, in its port"),
    pytest.param(usb("1", "1-3"), OTHER_TWIN, UNKNOWN, id="a serial that is repeated by now, in another port"),
    pytest.param(BARE, usb("", "1-3", number="c188:9"), SAME, id="no serial, in its port"),
    pytest.param(BARE, ELSEWHERE, UNKNOWN, id="no serial, in another port"),
    pytest.param(BARE, ("/port/1-3/x", "/usb/1a86:7523:@1-3/x"), UNKNOWN, id="no serial, another maker, in its port"),
    pytest.param(BARE, ("/port/1-4/x", "/usb/1a86:7523:@1-4/x"), OTHER, id="no serial, another maker elsewhere"),
    pytest.param(A, ("/port/1-3/x", "/usb/0403:9999:A/x"), SAME, id="other firmware of one stick"),
    pytest.param(A, ("/port/1-3/x", "/usb/9999:6001:A/x"), OTHER, id="another maker's stick with one serial"),
    pytest.param(A, usb("A", "1-3", within="1.1/ttyUSB#0/tty/ttyUSB#0"), OTHER, id="the other port of one adapter"),
    pytest.param(A, usb("A", "1-3", within="1.0"), SAME, id="raw access to what its driver makes a tty"),
    pytest.param(("hub /usb/05e3:0610:@1-3",), ("/usb/05e3:0610:@1-3/1.0",), OTHER, id="a hub, and what is no hub"),
    pytest.param((*A, *usb("L", "1-4")), (*B, *usb("L", "1-4")), OTHER, id="one of the two sticks of a device"),
    pytest.param((*A, *usb("L", "1-4")), A, SAME, id="a file less"),
    pytest.param(A, (*A, *usb("L", "1-4")), SAME, id="a file more"),
    pytest.param(("GPU-A", "c195:1"), ("GPU-A", "c195:0"), SAME, id="a GPU with another minor number"),
    pytest.param(("GPU-A",), ("GPU-B", "c195:1"), OTHER, id="another GPU has the file"),
    pytest.param(("GPU-A",), ("MIG-1", "GPU-A"), SAME, id="an instance of the GPU"),
    pytest.param(("MIG-1", "GPU-A"), ("MIG-2", "GPU-A"), OTHER, id="another instance of the GPU"),
    pytest.param(("GPU-A",), (), UNKNOWN, id="the file is nobody's"),
    pytest.param(("GPU-A", "c195:0"), ("c195:0",), UNKNOWN, id="a number proves no GPU"),
    pytest.param(A, ("c188:0",), UNKNOWN, id="a number proves no stick"),
    pytest.param(("/lasting/devices/pci/02.0/drm/card#0",), ("/lasting/devices/pci/03.0/drm/card#0",), OTHER, id="PCI"),
    pytest.param(("/lasting/devices/pci/02.0",), ("/lasting/devices/pci/02.0/drm/card#0",), SAME, id="a card's file"),
    pytest.param(A, ("/lasting/devices/pci/02.0",), OTHER, id="a stick, and a card"),
    pytest.param(("GPU-A",), ("/lasting/devices/pci/02.0",), UNKNOWN, id="nothing to compare"),
    pytest.param(("pair:iommu:7:vfio",), ("pair:iommu:8:vfio",), OTHER, id="two IOMMU groups"),
    pytest.param(("c188:0",), ("c188:0",), SAME, id="one number"),
    pytest.param(("c188:0",), ("c188:1",), OTHER, id="two numbers"),
    pytest.param(("path:/dev/x",), ("path:/dev/x",), SAME, id="one path"),
    pytest.param((), (), UNKNOWN, id="files that are no device"),
    pytest.param((), A, UNKNOWN, id="nothing was stored"),
    pytest.param(("by port 1-3", "/port/1-3", *A), B, SAME, id="whatever is in the port"),
    pytest.param(("by port 1-3", "/port/1-3"), usb("A", "1-4"), OTHER, id="what is in another port"),
    pytest.param(("by port 1-3", "/port/1-3"), ("c188:0",), UNKNOWN, id="a port, and what may be anywhere"),
]


@pytest.mark.parametrize(("stored", "now", "expected"), CASES)
def test_of_each_kind(stored: tuple[str, ...], now: tuple[str, ...], expected: Sameness) -> None:
    assert same_device(stored, now) is expected
    assert same_device([*reversed(stored)], [*reversed(now)]) is expected
    if expected is not OTHER:
        # whoever holds the one may hold the other
        assert may_be_one(stored, now)


@pytest.mark.parametrize(
    ("one", "other"),
    [(A, B), (A, BARE), (("GPU-A", "c195:0"), ("GPU-B", "c195:0")), (A, ("/lasting/devices/x", "c188:0"))],
)
def test_a_number_that_has_passed_on_makes_no_two_devices_one(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert not may_be_one(one, other)
    assert not may_be_one(other, one)


def test_two_devices_with_a_part_in_common_are_not_the_same_and_exclude_each_other() -> None:
    lamp = usb("L", "1-4")
    assert same_device((*A, *lamp), (*B, *lamp)) is OTHER
    assert may_be_one((*A, *lamp), (*B, *lamp))


def test_what_a_name_stood_for_is_found_whole_or_not_at_all() -> None:
    assert is_moved(A, usb("A", "2-1", number="c188:4"))
    assert is_moved(usb("1", "1-3"), TWIN)
    # a part of it, or more than it
    assert not is_moved(A, usb("A", "1-3", within="1.0"))
    assert not is_moved(A, (*A, *usb("L", "1-4")))
    assert not is_moved(A, B)
    assert not is_moved(BARE, ELSEWHERE)


def test_what_lasts_over_a_boot() -> None:
    assert [
        token for token in (*A, "GPU-A", "by port 1-1", "/devices/x", "path:/dev/x", "b8:0") if is_lasting(token)
    ] == [
        *A[:2],
        "GPU-A",
        "by port 1-1",
    ]


@pytest.mark.parametrize(
    ("token", "alone"),
    [
        ("/usb/1:2:S@1-1/x", "/usb/1:2:S/x"),
        ("/usb/1:2:S@1-1", "/usb/1:2:S"),
        ("/usb/1:2:S/x", ""),
        # without a serial only the port says what it is
        ("/usb/1:2:@1-1/x", ""),
        ("/port/1-1/x", ""),
    ],
)
def test_a_serial_that_is_repeated_by_now_was_once_its_own(token: str, alone: str) -> None:
    assert with_serial_alone(token) == alone
