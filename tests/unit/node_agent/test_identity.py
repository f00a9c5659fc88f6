"""What a device is, in one form whichever way it was written, and whether two identities are of one device."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.identity import (
    Kind,
    Sameness,
    base_id,
    compare,
    is_lasting,
    is_moved,
    kind_of,
    made_id,
    same_device,
    uuid_of,
)
from nodedevice_agent.identity_index import Index, overlapping

SAME, UNKNOWN, OVERLAPPING, OTHER = Sameness
HEX = "0650a168-e770-3ea8-8ac3-8a1d419763e0"
TTY = "1.0/ttyUSB#0/tty/ttyUSB#0"


def usb(serial: str, port: str, *, within: str = TTY, own: bool = True, number: str = "c188:0") -> tuple[str, ...]:
    """An FTDI stick in a port. own: whether no other one has its serial."""
    at = "" if own and serial else f"@{port}"
    return f"/port/{port}/{within}", f"/usb/0403:6001:{serial}{at}/{within}", number


A, B = usb("A", "1-3"), usb("B", "1-3")
TWIN, OTHER_TWIN = usb("1", "1-3", own=False), usb("1", "1-4", own=False)
BARE, ELSEWHERE = usb("", "1-3"), usb("", "1-4")

CASES = [
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
    pytest.param((*A, *usb("L", "1-4")), (*B, *usb("L", "1-4")), OVERLAPPING, id="one of the two sticks of a device"),
    pytest.param((*A, *usb("L", "1-4")), A, SAME, id="a file less"),
    pytest.param(A, (*A, *usb("L", "1-4")), SAME, id="a file more"),
    pytest.param(("GPU-A", "c195:1"), ("GPU-A", "c195:0"), SAME, id="a GPU with another minor number"),
    pytest.param(("GPU-A",), ("GPU-B", "c195:1"), OTHER, id="another GPU has the file"),
    pytest.param(("GPU-A",), ("MIG-1", "GPU-A"), SAME, id="an instance of the GPU"),
    pytest.param(("MIG-1", "GPU-A"), ("MIG-2", "GPU-A"), OTHER, id="another instance of the GPU"),
    pytest.param(("GPU-A",), (), UNKNOWN, id="the file is of no device"),
    pytest.param(("GPU-A", "c195:0"), ("c195:0",), UNKNOWN, id="a number proves no GPU"),
    pytest.param(A, ("c188:0",), UNKNOWN, id="a number proves no stick"),
    pytest.param(("/lasting/devices/pci/02.0/drm/card#0",), ("/lasting/devices/pci/03.0/drm/card#0",), OTHER, id="PCI"),
    pytest.param(("/lasting/devices/pci/02.0",), ("/lasting/devices/pci/02.0/drm/card#0",), SAME, id="a card's file"),
    pytest.param(A, ("/lasting/devices/pci/02.0",), OTHER, id="a stick, and a card"),
    pytest.param(("GPU-A",), ("/lasting/devices/pci/02.0",), UNKNOWN, id="nothing to compare"),
    pytest.param(("pair:iommu:7:vfio",), ("pair:iommu:8:vfio",), OTHER, id="two IOMMU groups"),
    pytest.param(("c188:0",), ("c188:1",), OTHER, id="two numbers"),
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
        # who holds the one may hold the other
        assert compare(stored, now) is not OTHER


def test_what_a_name_stood_for_is_found_whole_or_not_at_all() -> None:
    assert is_moved(A, usb("A", "2-1", number="c188:4"))
    assert is_moved(usb("1", "1-3"), TWIN)
    # a part of it, or more than it
    assert not is_moved(A, usb("A", "1-3", within="1.0"))
    assert not is_moved(A, (*A, *usb("L", "1-4")))
    assert not is_moved(A, B)
    assert not is_moved(BARE, ELSEWHERE)


def test_what_lasts_over_a_boot() -> None:
    tokens = (*A, "GPU-A", "by port 1-1", "/devices/x", "path:/dev/x", "b8:0")
    assert [token for token in tokens if is_lasting(token)] == [*A[:2], "GPU-A", "by port 1-1"]


PCI_A, PCI_B = "pci:0000:1b:00.0", "pci:0000:1c:00.0"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([PCI_A], [PCI_B], OTHER),
        ([PCI_A, PCI_B], [PCI_B], SAME),
        ([PCI_A], ["gpu-x"], UNKNOWN),
        (["serial:0403:a"], ["serial:0403:b"], UNKNOWN),
        ([f"gpu-{HEX}"], [f"gpu-{HEX[::-1]}"], UNKNOWN),
        ([f"gpu-{HEX}"], [f"1{HEX[1:]}"], UNKNOWN),
        ([f"gpu-{HEX}"], ["0x12345678"], UNKNOWN),
        ([f"gpu-{HEX}"], [f"rack:gpu-1{HEX[1:]}"], UNKNOWN),
        ([f"gpu-{HEX}", PCI_A], [f"gpu-{HEX}", PCI_B], OTHER),
        # the ports of an adapter have one serial
        ([PCI_A, "serial:a:1"], [PCI_B, "serial:a:1"], OTHER),
        (("by port 1-3", *A), usb("B", "1-4"), OVERLAPPING),
        (("GPU-A", "c195:0"), ("GPU-B", "c195:0"), OTHER),
        (A, ("/lasting/devices/x", "c188:0"), OTHER),
    ],
)
def test_uuids_pci_addresses_and_serials_decide_whatever_else_is_equal(
    one: list[str], other: list[str], expected: Sameness
) -> None:
    assert compare(one, other) is compare(other, one) is expected


_UUIDS = [f"GPU-{HEX}", f"GPU-1{HEX[1:]}", f"MIG-{HEX}", "GPU-A", "12345678"]
_TOKENS = st.sampled_from([*_UUIDS, PCI_A, PCI_B, "serial:a:1", "c188:0", "c188:1", "path:/dev/x", "pair:iommu:7:vfio"])
_USB = st.builds(usb, st.sampled_from(["", "A", "B"]), st.sampled_from(["1-3", "1-4"]), own=st.booleans()).map(list)
_MIXED = st.tuples(_USB, st.lists(_TOKENS, unique=True)).map(lambda both: [*both[0], *both[1]])
_IDENTITIES = st.one_of(st.lists(_TOKENS, unique=True), _USB, _MIXED)


@given(_IDENTITIES, _IDENTITIES)
def test_the_comparison_is_the_same_in_both_directions_and_in_any_order(one: list[str], other: list[str]) -> None:
    found = compare(one, other)
    assert compare(other, one) is found
    assert compare(sorted(one), sorted(other)) is found or sorted(one) == sorted(other)
    assert same_device(one, other) is found, "without a port that is meant"
    assert not is_moved(one, other) or found is SAME


@given(_IDENTITIES)
def test_a_device_is_itself(identity: list[str]) -> None:
    assert compare(identity, identity) is (SAME if identity else UNKNOWN)
    if any(map(is_lasting, identity)):
        assert is_moved(identity, identity)


@given(st.lists(_TOKENS), st.lists(_TOKENS), st.sampled_from(["GPU-{}", "MIG-{}", "{}"]))
def test_different_uuids_are_never_one_device(one: list[str], other: list[str], form: str) -> None:
    """Of one maker, whatever else is equal."""
    mine = [form.format(HEX), *(token for token in one if kind_of(token) is not Kind.UUID)]
    others = [form.format(f"1{HEX[1:]}"), *(token for token in other if kind_of(token) is not Kind.UUID)]
    assert compare(mine, others) is compare(others, mine) is OTHER


def test_candidates_have_a_token_in_common_or_a_place_in_the_others() -> None:
    index = Index[str]()
    index.add("usb", ["/devices/usb1/1-1", "c189:1"])
    index.add("tty", ["/devices/usb1/1-1/tty"])
    index.add("gpu", ["GPU-A"])
    assert [*index.related(["/devices/usb1/1-1"])] == ["usb", "tty"]
    assert [*index.related(["/devices/usb1/1-1/tty/x"])] == ["tty", "usb"]
    assert [*index.related(["/devices/usb1/1-11", "GPU", "hub /devices/usb1/1-1/x"])] == []
    assert [*index.related(["c189:1", "GPU-A"])] == ["usb", "gpu"]
    assert [*Index[str]().related(["GPU-A"])] == []


@given(st.lists(_IDENTITIES, max_size=6))
def test_what_overlaps_has_candidates_and_what_has_candidates_overlaps(identities: list[list[str]]) -> None:
    """But for devices with one serial in several ports, which are no candidates of each other by it."""
    index, all_of_them = Index[int](), dict(enumerate(identities))
    for number, tokens in all_of_them.items():
        index.add(number, tokens)
    candidates = {n for n, tokens in all_of_them.items() if any(other != n for other in index.related(tokens))}
    assert candidates <= overlapping(all_of_them)
    without_ports = {n: [token for token in of if "@" not in token] for n, of in all_of_them.items()}
    if without_ports == all_of_them:
        assert candidates == overlapping(all_of_them)


def test_an_id_that_is_made_is_the_same_for_the_same_device() -> None:
    """It depends on lasting tokens alone, where there are any, and names the same part."""
    made = made_id("ttyUSB0", ("c188:0", *A[:2]), 100)
    assert made == made_id("ttyUSB0", A[:2], 100) != made_id("ttyUSB0", B[:2], 100)
    assert made.startswith("ttyUSB0-")
    assert made_id("ttyUSB0::3", A, 100) == f"{made}::3"
    assert made_id("x" * 200, A, 100)[:101] == "x" * 100 + "-"
    assert made_id("a", ("c188:0",), 100) != made_id("a", ("c188:1",), 100)


@pytest.mark.parametrize(
    ("text", "found", "base"),
    [
        (f"GPU-{HEX}", f"gpu-{HEX}", f"GPU-{HEX}"),
        (f"GPU-{HEX.upper()}::12", f"gpu-{HEX}", f"GPU-{HEX.upper()}"),
        (f"GPU-{HEX}-9", f"gpu-{HEX}", f"GPU-{HEX}"),
        (f"GPU-{HEX}-_-79", f"gpu-{HEX}", f"GPU-{HEX}"),
        (HEX, f"{HEX}", HEX),
        (f"MIG-{HEX}", f"mig-{HEX}", f"MIG-{HEX}"),
        (f"MIG-GPU-{HEX}/7/0", f"mig-gpu-{HEX}/7/0", f"MIG-GPU-{HEX}/7/0"),
        (f"MIG-GPU-{HEX}/7/0::1", f"mig-gpu-{HEX}/7/0", f"MIG-GPU-{HEX}/7/0"),
        ("GPU-00000000-0000-0000-0000-000000000000", None, "GPU-00000000-0000-0000-0000-000000000000"),
        (f"GPU-{HEX}x", None, f"GPU-{HEX}x"),
        (f"x GPU-{HEX}", None, f"x GPU-{HEX}"),
        ("gpu-0", None, "gpu-0"),
        ("tty::3", None, "tty"),
        ("tty-3", None, "tty-3"),
        ("da39a3ee5e6b4b0d3255bfef95601890afd80709", None, "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("", None, ""),
    ],
)
def test_a_uuid_and_the_device_of_a_share(text: str, found: str | None, base: str) -> None:
    assert (uuid_of(text), base_id(text)) == (found, base)
