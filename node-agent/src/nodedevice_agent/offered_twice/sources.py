"""The table of identities that each source provides, and its only reader. Pure.

A row has a source, a kind of identity, whether it covers all devices or only held ones, and its reader. Two sources without a
common kind cannot be compared.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.identity import Kind, base_id, is_instance, is_number, kind_of, own_serial, uuid_of
from nodedevice_agent.offered_twice.files import Node

AttributeValue = str | int | bool

_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
# ends of attribute names, without domains and in small letters
_UUID_NAMES: Final = ("uuid",)
_PCI_NAMES: Final = ("pciaddress", "pcibusaddress", "pciaddr", "pcibusid")
_SERIAL_NAMES: Final = ("serial", "serialnumber", "serialno")
_VENDOR_NAMES: Final = ("vendor", "vendorid", "vendorname")
# Words before it exclude a name: the parent's address does not identify an instance, nor the PF's a VF.
_ANOTHERS: Final = re.compile(r"parent|pf|phys|root|host|node|board|cluster|fabric|clique|switch|bridge|peer|driver")
# the folder of a graphics card or an accelerator in sysfs: its PCI function is directly above
_FUNCTION: Final = re.compile(r"/devices/.*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(?:drm|accel)")
_ADAPTERS: Final = "/dev/infiniband/"
_VIRTUAL: Final = "/devices/virtual/"
_SHORTEST_UUID: Final = 8
_PCI_ADDRESS: Final = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([01][0-9a-f])\.([0-7])", re.IGNORECASE)
# placeholders of makers for an unknown serial number
_NO_SERIAL: Final = frozenset({"", "0", "none", "unknown", "n/a", "na", "null", "default", "0123456789abcdef"})


def named_uuid(text: str) -> str | None:
    """The token of a UUID, in any form of its source."""
    text = text.strip().lower()
    is_one = len(text) >= _SHORTEST_UUID and text.strip("0-") and kind_of(text) is Kind.UUID
    return uuid_of(text) or (text if is_one else None)


def pci_of(text: str) -> str | None:
    """A PCI address, as in sysfs: the driver's 00000000:1B:00.0 is 0000:1b:00.0."""
    match = _PCI_ADDRESS.fullmatch(base_id(text))
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{Kind.PCI}:{domain:04x}:{match[2]}:{match[3]}.{match[4]}".lower()


def serial_of(vendor: str, serial: str) -> str | None:
    """The token of a serial number, which needs its vendor. vendor: a name, or a number such as 0x1a86."""
    vendor, serial = vendor.strip().lower().removeprefix("0x"), serial.strip().lower()
    if not vendor or serial in _NO_SERIAL or set(serial) == {"0"}:
        return None
    return f"{Kind.SERIAL}:{vendor}:{serial}"


class Source(StrEnum):
    """A source of devices."""

    KUBELET = "a device plugin of the kubelet"
    DRA = "a DRA driver"
    PLUGIN = "a device plugin that registers with the agent"
    BUILT_IN = "a built-in plugin"


class Raw(Struct, frozen=True):
    """A device of its source, or several that are held together.

    attributes: a driver's by qualified name, or a built-in plugin's. tokens: see nodedevice_agent/identity.py. nodes: device
    files. is_only: whether its source offers nothing else. is_shared: several containers may hold it.
    """

    id: str = ""
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    tokens: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    is_only: bool = False
    is_shared: bool = False


class Row(Struct, frozen=True):
    """is_of_all: covers all devices; else only held ones. where: the input, for the table in docs/watch-only.md."""

    source: Source
    kind: Kind
    is_of_all: bool
    where: str
    read: Callable[[Raw], Iterable[str | None]]


def _node_files(raw: Raw) -> Iterator[str]:
    """Drop files of a network adapter if there are others: plugins of GPUs add them."""
    read = [(node.target or node.path, [*node.tokens(is_only=raw.is_only)]) for node in raw.nodes]
    owned = [(path.startswith(_ADAPTERS), tokens) for path, tokens in read if tokens]
    are_adapters = all(is_adapter for is_adapter, _ in owned)
    return (token for is_adapter, tokens in owned if are_adapters or not is_adapter for token in tokens)


def _attribute_pci(raw: Raw) -> Iterable[str | None]:
    standard = raw.attributes.get(_PCI_BUS_ID)
    found = pci_of(standard) if isinstance(standard, str) else None
    return [found] if found else map(pci_of, _plainest(raw.attributes, _PCI_NAMES, pci_of))


def _attribute_serial(raw: Raw) -> Iterator[str | None]:
    for serial in _plainest(raw.attributes, _SERIAL_NAMES, bool):
        for vendor in _plainest(raw.attributes, _VENDOR_NAMES, bool):
            yield serial_of(vendor, serial)


def _token_pci(raw: Raw) -> Iterator[str | None]:
    bus_id = raw.attributes.get("pciBusID")
    yield pci_of(bus_id) if isinstance(bus_id, str) else None
    for match in filter(None, map(_FUNCTION.fullmatch, raw.tokens)):
        yield pci_of(match[1])


def _token_files(raw: Raw) -> Iterator[str]:
    """Drop a kernel file that several containers may have, such as /dev/fuse: it identifies no device."""
    virtual = [token for token in raw.tokens if token.startswith(_VIRTUAL)]
    if raw.is_shared and any(not token[-1].isdigit() for token in virtual):
        return
    yield from filter(is_number, raw.tokens)
    yield from _node_files(raw)


def _token_serial(raw: Raw) -> Iterator[str | None]:
    return (serial_of(*found) for found in map(own_serial, raw.tokens) if found is not None)


def _rows_of_plugins(source: Source, of_held: str) -> tuple[Row, ...]:
    """Rows of plugins that only provide IDs and files of containers."""
    ids = "its ID, without `::` and the number of a share"
    paths = "its ID if it is a path; links, such as those in `/dev/serial/by-id`, are followed"
    return (
        Row(source, Kind.UUID, True, ids, lambda raw: [uuid_of(raw.id)]),
        Row(source, Kind.PCI, True, ids, lambda raw: [pci_of(raw.id)]),
        Row(source, Kind.FILE, True, paths, _node_files),
        Row(source, Kind.FILE, False, of_held, _node_files),
    )


_ANSWER: Final = "device files in the plugin's response to Allocate, and of the CDI devices that it names"
_UUIDS: Final = "an attribute whose name ends in `uuid`"
_ADDRESSES: Final = f"`{_PCI_BUS_ID}`, or an attribute whose name ends in `pciAddress`"
_SERIALS: Final = "attributes whose names end in `serial` and `vendor`, together"
_CDI: Final = "device files of the CDI devices that the kubelet names"
_FUNCTIONS: Final = "the driver (`nvml`), sysfs (`generic`, of graphics cards and accelerators)"
TABLE: Final = (
    *_rows_of_plugins(Source.KUBELET, f"{_ANSWER}, in the kubelet's checkpoint"),
    Row(
        Source.DRA,
        Kind.UUID,
        True,
        _UUIDS,
        lambda raw: map(named_uuid, _plainest(raw.attributes, _UUID_NAMES, named_uuid)),
    ),
    Row(Source.DRA, Kind.PCI, True, _ADDRESSES, _attribute_pci),
    Row(Source.DRA, Kind.SERIAL, True, _SERIALS, _attribute_serial),
    Row(Source.DRA, Kind.FILE, False, _CDI, _node_files),
    *_rows_of_plugins(Source.PLUGIN, _ANSWER),
    Row(Source.BUILT_IN, Kind.UUID, True, "the driver (`nvml`)", lambda raw: map(uuid_of, raw.tokens)),
    Row(Source.BUILT_IN, Kind.PCI, True, _FUNCTIONS, _token_pci),
    Row(Source.BUILT_IN, Kind.FILE, True, "device numbers (`nvml`, `generic`)", _token_files),
    Row(
        Source.BUILT_IN,
        Kind.SERIAL,
        True,
        "sysfs (`generic`, of USB devices)",
        _token_serial,
    ),
)
_ROWS: Final = {
    (source, is_of_all): tuple(row for row in TABLE if row.source is source and row.is_of_all == is_of_all)
    for source in Source
    for is_of_all in (True, False)
}


def identities_of(source: Source, raw: Raw, *, is_of_all: bool = True) -> tuple[str, ...]:
    """Tokens from the source's rows. is_of_all: False for rows of held devices only.

    A MIG instance gets only its own UUID: its other tokens also belong to the GPU.
    """
    rows = _ROWS[source, is_of_all]
    read = (found for row in rows for found in row.read(raw) if found is not None and kind_of(found) is row.kind)
    tokens = tuple(dict.fromkeys(read))
    return tuple(filter(is_instance, tokens)) or tokens


def _plainest(
    attributes: Mapping[str, AttributeValue], endings: tuple[str, ...], is_one: Callable[[str], object]
) -> list[str]:
    """The valid values of the attribute whose name has one of these endings; of the shortest such name, if several have."""
    found: dict[str, list[str]] = {}
    for qualified, value in attributes.items():
        name = qualified.rpartition("/")[2].lower()
        if not name.endswith(endings) or isinstance(value, bool):
            continue
        before = next(name.removesuffix(ending) for ending in endings if name.endswith(ending))
        text = value if isinstance(value, str) else f"{value:04x}"
        if is_one(text) and not _ANOTHERS.search(before):
            found.setdefault(before, []).append(text)
    return found[min(found, key=lambda before: (len(before), before))] if found else []
