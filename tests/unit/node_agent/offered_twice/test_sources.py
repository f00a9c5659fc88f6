"""What each source says of its devices, as tokens; and what says nothing of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.identity import Kind, kind_of
from nodedevice_agent.offered_twice.files import Node, dev_path
from nodedevice_agent.offered_twice.sources import (
    AttributeValue,
    Raw,
    Source,
    identities_of,
    named_uuid,
    pci_of,
    serial_of,
)

HEX = "0650a168-e770-3ea8-8ac3-8a1d419763e0"
BUS = "resource.kubernetes.io/pciBusID"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (f" GPU-{HEX} ", f"gpu-{HEX}"),
        ("0x1A2B3C4D", "0x1a2b3c4d"),
        ("12345678", "12345678"),
        ("1234567", None),
        # another kind's
        ("/usb/0403:6001:A5", None),
        ("serial:0403:a5", None),
        ("00000000-0000", None),
        ("", None),
    ],
)
def test_what_is_called_a_uuid_is_one_in_any_form(text: str, found: str | None) -> None:
    assert named_uuid(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("0000:1b:00.0", "pci:0000:1b:00.0"),
        ("00000000:1B:02.7", "pci:0000:1b:02.7"),
        ("00010000:1b:1f.0", "pci:10000:1b:1f.0"),
        ("abcd:01:00.0::3", "pci:abcd:01:00.0"),
        ("1b:00.0", "pci:0000:1b:00.0"),
        ("0000:1b:00.8", None),
        ("0000:1b:20.0", None),
        ("0000:1b:00", None),
        ("x0000:1b:00.0", None),
        ("0000-1b-00-0", None),
    ],
)
def test_a_pci_address(text: str, found: str | None) -> None:
    assert pci_of(text) == found


@pytest.mark.parametrize(
    ("vendor", "serial", "found"),
    [
        ("0403", "A50285BI", "serial:0403:a50285bi"),
        (" 0x0403 ", " A50285BI ", "serial:0403:a50285bi"),
        ("", "A50285BI", None),
        ("0403", "", None),
        ("0403", "N/A", None),
        ("0403", "00000000", None),
        ("0403", "0123456789ABCDEF", None),
    ],
)
def test_a_serial_number(vendor: str, serial: str, found: str | None) -> None:
    assert serial_of(vendor, serial) == found


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/dev/nvidia0", "/dev/nvidia0"),
        ("/dev//dri/../nvidia0", "/dev/nvidia0"),
        ("/run/nvidia/driver/dev/nvidia0", "/dev/nvidia0"),
        ("/dev/serial/by-id/a", "/dev/serial/by-id/a"),
        ("/host/dev/x/dev/y", "/dev/y"),
        ("/srv/nvidia0", ""),
        ("/dev", ""),
        ("/dev/", ""),
        ("dev/nvidia0", ""),
        ("", ""),
    ],
)
def test_a_path_is_taken_from_dev_on(path: str, found: str) -> None:
    assert dev_path(path) == found


@pytest.mark.parametrize(
    ("node", "found", "found_of_only"),
    [
        (Node("/dev/nvidia0", "c195:0"), ["c195:0", "path:/dev/nvidia0"], None),
        (Node("/dev/nvidia0"), ["path:/dev/nvidia0"], None),
        (Node("/dev/serial/by-id/a", "c188:0", "/dev/ttyUSB0", True), ["c188:0", "path:/dev/ttyUSB0"], None),
        (Node("/dev/sda", "b8:0", "/dev/sda", True), ["b8:0", "path:/dev/sda"], None),
        (Node("/dev/vfio/12", "c240:0"), ["c240:0", "path:/dev/vfio/12"], None),
        (Node("/dev/fuse", "c10:229"), [], ["c10:229", "path:/dev/fuse"]),
        (Node("/dev/widget", "c240:1", "/dev/widget", is_own=True), ["c240:1", "path:/dev/widget"], None),
        (Node("/dev/w", "c10:229", "/dev/w", is_own=True, is_copy=True), ["path:/dev/w"], None),
        (Node("/dev/nvidia-new-control", "c240:0", "/dev/nvidia-new-control", is_own=True), [], []),
        (Node("/dev/kfd", "c235:0", "/dev/kfd", True), [], []),
        (Node("/dev/vfio/vfio", "c10:196"), [], []),
        (Node("/dev/nvidiactl", "c195:255"), [], []),
        (Node("/dev/my-link0", "c195:255", "/dev/nvidiactl"), [], []),
        (Node("/dev/nvidia-caps/nvidia-cap3", "c241:3"), [], []),
        (Node("/dev/nvidia-caps-imex-channels/channel0", "c242:0"), [], []),
        (Node("", "c195:0"), [], ["c195:0"]),
        (Node(""), [], []),
    ],
)
def test_a_file_that_is_the_devices_own(node: Node, found: list[str], found_of_only: list[str] | None) -> None:
    """found_of_only: where its source offers nothing else."""
    assert [*node.tokens()] == found
    assert [*node.tokens(is_only=True)] == (found if found_of_only is None else found_of_only)


@pytest.mark.parametrize(
    ("attributes", "found"),
    [
        ({"x.example.com/UUID": f"GPU-{HEX}"}, [f"gpu-{HEX}"]),
        ({"gpuUuid": f"GPU-{HEX}"}, [f"gpu-{HEX}"]),
        ({"uuid": f"GPU-{HEX}", "gpuUUID": "something-else"}, [f"gpu-{HEX}"]),
        ({"zUUID": f"GPU-{HEX}", "aaUUID": "12345678"}, [f"gpu-{HEX}"]),
        ({"uuid": f"GPU-{HEX}", "y.example.com/uuid": "12345678"}, [f"gpu-{HEX}", "12345678"]),
        ({"parentUUID": f"GPU-{HEX}", "clusterUUID": "12345678", "uuid": True, "uuids": "12345678"}, []),
        ({BUS: "0000:1b:00.0", "pciAddress": "0000:1c:00.0"}, ["pci:0000:1b:00.0"]),
        ({BUS: "nonsense", "x/vfPCIAddress": "0000:1c:00.0"}, ["pci:0000:1c:00.0"]),
        ({BUS: 7, "pciAddr": "0000:1c:00.0"}, ["pci:0000:1c:00.0"]),
        ({"resource.kubernetes.io/pcieRoot": "pci0000:1b", "pciId": "0x56c0", "pfPciAddress": "0000:1c:00.0"}, []),
        ({"serial": "A5", "vendor": "0403"}, ["serial:0403:a5"]),
        ({"serialNumber": "A5", "idVendor": 0x403}, ["serial:0403:a5"]),
        ({"serialNo": "A5", "vendorID": "0x0403", "vendorName": "FTDI"}, ["serial:0403:a5", "serial:ftdi:a5"]),
        ({"abSerial": "A5", "zSerialNumber": "B6", "vendor": "0403"}, ["serial:0403:b6"]),
        ({"serial": True, "vendor": "0403"}, []),
        ({"serial": "A5"}, []),
        ({"vendor": "0403"}, []),
        ({"hostSerial": "A5", "vendor": "0403"}, []),
        ({"index": 0, "model": "uuid", "": "", "/": "x"}, []),
    ],
)
def test_what_a_drivers_attributes_say(attributes: dict[str, AttributeValue], found: list[str]) -> None:
    assert [*identities_of(Source.DRA, Raw("gpu-0", attributes))] == found


@pytest.mark.parametrize(
    ("raw", "found"),
    [
        (Raw("x", tokens=(f"GPU-{HEX}", "c195:0")), [f"gpu-{HEX}", "c195:0"]),
        (Raw("x", {"pciBusID": "0000:1b:00.0"}), ["pci:0000:1b:00.0"]),
        (Raw("x", {"pciBusID": "nonsense"}), []),
        (Raw("x", tokens=("/devices/pci0000:00/0000:1b:00.0/drm",)), ["pci:0000:1b:00.0"]),
        (Raw("x", tokens=("/devices/pci0000:00/0000:1b:00.0/accel",)), ["pci:0000:1b:00.0"]),
        # the controller's, and a port of a card
        (Raw("x", tokens=("/devices/pci0000:00/0000:1b:00.0/usb1/1-1",)), []),
        (Raw("x", tokens=("/devices/pci0000:00/0000:1b:00.0/tty/ttyS4",)), []),
        (Raw("x", tokens=("/usb/0403:6001:A5/1.0",)), ["serial:0403:a5"]),
        (Raw("x", tokens=("/usb/0403:6001:A5@1-2/1.0", "/usb/0403:6001:", "/port/1-2", "hub /usb/0403:6001:A5")), []),
        (Raw("x", tokens=("b8:0", "path:/dev/x", "c1")), ["b8:0"]),
        (Raw("x", tokens=("c10:229", "/devices/virtual/misc/fuse"), is_shared=True), []),
        (Raw("x", tokens=("c10:229", "/devices/virtual/misc/fuse")), ["c10:229"]),
        (Raw("x", tokens=("b7:0", "/devices/virtual/block/loop0"), is_shared=True), ["b7:0"]),
        (Raw("x", nodes=(Node("/dev/x1", "c1:1"),)), ["c1:1", "path:/dev/x1"]),
        # all else of an instance is its GPU's
        (Raw("x", tokens=(f"GPU-{HEX}", "c195:0", f"MIG-{HEX}", f"MIG-{HEX}")), [f"mig-{HEX}"]),
    ],
)
def test_what_a_built_in_plugin_says(raw: Raw, found: list[str]) -> None:
    assert [*identities_of(Source.BUILT_IN, raw)] == found


_LIKE_IDS = st.from_regex(r"(GPU-)?[0-9a-f:./@-]{0,40}(::\d+)?")
_TEXTS = st.one_of(st.text(), _LIKE_IDS, st.sampled_from(["/dev/x1", "uuid", "/usb/a:b:c"]))
_NAMES = st.one_of(st.text(), st.sampled_from([BUS, "a/uuid", "serial", "vendor"]))
_NODES = st.builds(Node, _TEXTS, st.sampled_from(["", "c1:3"]), _TEXTS, st.booleans(), st.booleans())
_RAWS = st.builds(
    Raw,
    _TEXTS,
    st.dictionaries(_NAMES, st.one_of(_TEXTS, st.integers(), st.booleans())),
    st.lists(_TEXTS).map(tuple),
    st.lists(_NODES).map(tuple),
    st.booleans(),
    st.booleans(),
)


@given(_RAWS, st.sampled_from(Source), st.booleans())
def test_whatever_a_source_shows_is_read(raw: Raw, source: Source, is_of_all: bool) -> None:
    found = identities_of(source, raw, is_of_all=is_of_all)
    assert len({*found}) == len(found)
    assert {kind_of(token) for token in found} <= {Kind.UUID, Kind.PCI, Kind.FILE, Kind.SERIAL}
    assert all(token.rpartition(":")[2] for token in found)
