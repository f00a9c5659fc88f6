"""The table of what each source can tell of a device, and the one reading of it. Pure.

A row is a source, a kind of identity, whether of all its devices or only of held ones, and how it is read. What has no row is not
known: two sources that have no kind in common cannot be compared.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.identity import Kind, is_instance, is_number, kind_of, named_uuid, pci_of, serial_of, uuid_of
from nodedevice_agent.offered_twice.files import Node

AttributeValue = str | int | bool

_PCI_BUS_ID: Final = "resource.kubernetes.io/pciBusID"
# how names of attributes end, without their domains and in small letters
_UUID_NAMES: Final = ("uuid",)
_PCI_NAMES: Final = ("pciaddress", "pcibusaddress", "pciaddr", "pcibusid")
_SERIAL_NAMES: Final = ("serial", "serialnumber", "serialno")
_VENDOR_NAMES: Final = ("vendor", "vendorid", "vendorname")
# What comes before: that of the parent of an instance, or of the PF of a VF, is no identity of it.
_ANOTHERS: Final = re.compile(r"parent|pf|phys|root|host|node|board|cluster|fabric|clique|switch|bridge|peer|driver")
# what a graphics card, or an accelerator, has in sysfs: its PCI function is the one right above
_FUNCTION: Final = re.compile(r"/devices/.*/([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])/(?:drm|accel)")
_ADAPTERS: Final = "/dev/infiniband/"
# vendor, product and serial; @ and a port follow where these are not its own (plugins/generic/lasting_places.py)
_USB: Final = re.compile(r"/usb/([^:/@]*):[^:/@]*:([^:/@]+)(?:/.*)?")
_VIRTUAL: Final = "/devices/virtual/"


class Source(StrEnum):
    """Who offers a device."""

    KUBELET = "a device plugin of the kubelet"
    DRA = "a DRA driver"
    PLUGIN = "a device plugin that registers with the agent"
    BUILT_IN = "a built-in plugin"


class Raw(Struct, frozen=True):
    """A device as its source shows it, or several that are held together.

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
    """is_of_all: of all devices; else of held ones. where: from what it is read, for the table in docs/observe.md."""

    source: Source
    kind: Kind
    is_of_all: bool
    where: str
    read: Callable[[Raw], Iterable[str | None]]


def _id_uuid(raw: Raw) -> Iterator[str | None]:
    yield uuid_of(raw.id)


def _id_pci(raw: Raw) -> Iterator[str | None]:
    yield pci_of(raw.id)


def _node_files(raw: Raw) -> Iterator[str]:
    """Those of a network adapter beside others are an addition, as plugins of GPUs make it."""
    files = [[*node.tokens(is_only=raw.is_only)] for node in raw.nodes]
    owned = [(node.target or node.path, found) for node, found in zip(raw.nodes, files, strict=True) if found]
    adapters = [path.startswith(_ADAPTERS) for path, _ in owned]
    for (_, found), is_adapter in zip(owned, adapters, strict=True):
        if not is_adapter or all(adapters):
            yield from found


def _attribute_uuid(raw: Raw) -> Iterator[str | None]:
    yield from map(named_uuid, _plainest(raw.attributes, _UUID_NAMES, named_uuid))


def _attribute_pci(raw: Raw) -> Iterator[str | None]:
    standard = raw.attributes.get(_PCI_BUS_ID)
    named = (
        [standard] if isinstance(standard, str) and pci_of(standard) else _plainest(raw.attributes, _PCI_NAMES, pci_of)
    )
    yield from map(pci_of, named)


def _attribute_serial(raw: Raw) -> Iterator[str | None]:
    for serial in _plainest(raw.attributes, _SERIAL_NAMES, bool):
        for vendor in _plainest(raw.attributes, _VENDOR_NAMES, bool):
            yield serial_of(vendor, serial)


def _token_uuid(raw: Raw) -> Iterator[str | None]:
    yield from map(uuid_of, raw.tokens)


def _token_pci(raw: Raw) -> Iterator[str | None]:
    bus_id = raw.attributes.get("pciBusID")
    yield pci_of(bus_id) if isinstance(bus_id, str) else None
    for match in filter(None, map(_FUNCTION.fullmatch, raw.tokens)):
        yield pci_of(match[1])


def _token_files(raw: Raw) -> Iterator[str]:
    """A file of the kernel's that several containers may have, such as /dev/fuse, is nobody's own."""
    virtual = [token for token in raw.tokens if token.startswith(_VIRTUAL)]
    if raw.is_shared and any(not token[-1].isdigit() for token in virtual):
        return
    yield from filter(is_number, raw.tokens)
    yield from _node_files(raw)


def _token_serial(raw: Raw) -> Iterator[str | None]:
    for match in filter(None, map(_USB.fullmatch, raw.tokens)):
        yield serial_of(match[1], match[2])


_IDS: Final = "its ID, without `::` and the number of a share"
_PATH_IDS: Final = "its ID, where that is a path; links, such as those in `/dev/serial/by-id`, are followed"
_ANSWER: Final = "device files in the plugin's response to Allocate, and of the CDI devices that it names"

TABLE: Final = (
    Row(Source.KUBELET, Kind.UUID, True, _IDS, _id_uuid),
    Row(Source.KUBELET, Kind.PCI, True, _IDS, _id_pci),
    Row(Source.KUBELET, Kind.FILE, True, _PATH_IDS, _node_files),
    Row(Source.KUBELET, Kind.FILE, False, f"{_ANSWER}, in the kubelet's checkpoint", _node_files),
    Row(Source.DRA, Kind.UUID, True, "an attribute whose name ends in `uuid`", _attribute_uuid),
    Row(
        Source.DRA, Kind.PCI, True, f"`{_PCI_BUS_ID}`, or an attribute whose name ends in `pciAddress`", _attribute_pci
    ),
    Row(
        Source.DRA,
        Kind.SERIAL,
        True,
        "attributes whose names end in `serial` and `vendor`, together",
        _attribute_serial,
    ),
    Row(Source.DRA, Kind.FILE, False, "device files of the CDI devices that the kubelet names", _node_files),
    Row(Source.PLUGIN, Kind.UUID, True, _IDS, _id_uuid),
    Row(Source.PLUGIN, Kind.PCI, True, _IDS, _id_pci),
    Row(Source.PLUGIN, Kind.FILE, True, _PATH_IDS, _node_files),
    Row(Source.PLUGIN, Kind.FILE, False, _ANSWER, _node_files),
    Row(Source.BUILT_IN, Kind.UUID, True, "the driver (`nvml`)", _token_uuid),
    Row(
        Source.BUILT_IN,
        Kind.PCI,
        True,
        "the driver (`nvml`), sysfs (`generic`, of graphics cards and accelerators)",
        _token_pci,
    ),
    Row(Source.BUILT_IN, Kind.FILE, True, "device numbers (`nvml`, `generic`)", _token_files),
    Row(Source.BUILT_IN, Kind.SERIAL, True, "sysfs (`generic`, of USB devices)", _token_serial),
)
_ROWS: Final = {
    (source, is_of_all): tuple(row for row in TABLE if row.source is source and row.is_of_all == is_of_all)
    for source in Source
    for is_of_all in (True, False)
}


def identities_of(source: Source, raw: Raw, *, is_of_all: bool = True) -> tuple[str, ...]:
    """Tokens that the source's rows read. is_of_all: False for what is known of held devices alone.

    Of an instance of a GPU only its own UUID: all else is the GPU's, too.
    """
    rows = _ROWS[source, is_of_all]
    read = (found for row in rows for found in row.read(raw) if found is not None and kind_of(found) is row.kind)
    tokens = tuple(dict.fromkeys(read))
    return tuple(filter(is_instance, tokens)) or tokens


def _plainest(
    attributes: Mapping[str, AttributeValue], endings: tuple[str, ...], is_one: Callable[[str], object]
) -> list[str]:
    """Values of the attributes whose names end so: of several, those with the shortest. A longer one names something else."""
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
