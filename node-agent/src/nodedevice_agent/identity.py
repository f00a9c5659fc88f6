"""Identifies devices independently of their names, and decides whether two identities belong to one device. Pure.

An identity is a set of tokens. Each source of devices makes them in one place, and all comparisons use this module: one device
for one pod, devices that are offered twice, stored names, and names in CDI specifications.

    c188:0, b8:1                 FILE    a device number
    path:/dev/x                  FILE    the kernel's path of a device file
    GPU-0650a168-…               UUID    a UUID in its maker's form; default kind of a token
    pci:0000:1b:00.0             PCI     a PCI address
    serial:0403:a50285bi         SERIAL  a vendor and a serial number
    /devices/…                   PLACE   a place in sysfs, which includes what is below it
    /lasting/…, /port/…, /usb/…  PLACE   the same without the kernel's numbers; of USB by port, and by vendor, product and serial
    hub /usb/…                   PLACE   a hub, without the devices that are plugged in there
    by port 1-3                  PORT    any device in that port
    pair:iommu:7:vfio            PAIR    devices that one process has at a time

Lasting tokens, which survive a replug and a boot, decide. Device numbers, paths and places in sysfs pass from one device to
another: they decide only if neither side has a lasting token.

Two searches find the pairs to compare. For one device, one pod, identity_index also finds places inside other places. For devices
that are offered twice, offered_twice/compare.py uses equal tokens alone, in steps: it covers the devices of all programs, and their
identities have no places.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from msgspec import Struct
from nodedevice_api.parts import parent_and_number, part_id

_NUMBER: Final = re.compile(r"[cb]\d+:\d+")
_FORMS: Final = re.compile(
    r"(?P<file>[cb]\d+:\d+\Z|path:)|(?P<place>/|hub )|(?P<port>by port )|(?P<pair>pair:)|(?P<pci>pci:)|(?P<serial>serial:)"
)
_PATH: Final = "path:"
_DEVICES: Final = "/devices/"
_HUB: Final = "hub "
# Before a place within a USB device: vendor, product and serial, followed by @ and the port if other devices have the same.
_USB: Final = "/usb/"
# a place with a serial and its port
_REPEATED: Final = re.compile(r"(/usb/[^:/]*:[^:/]*:[^@/]+)@[^/]*(/.*)?")
# before a place within the device in a port
_PORT: Final = "/port/"
_LASTING: Final = "/lasting/"
_PAIR: Final = "pair:"
_BY_PORT: Final = "by port "
_HEX: Final = "[0-9a-f]"
# The maker's words precede it: GPU-, MIG-. The numbers of an instance of old drivers follow it (MIG-GPU-…/7/0), or the number of a
# share: ::0 of NVIDIA's plugin, -0 of HAMi's, -_-0 of Alibaba's.
_UUID: Final = re.compile(
    rf"((?:[a-z]+-)*)({_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}})(/\d+/\d+)?(?:(?:::|-_-|-)\d+)?",
    re.IGNORECASE,
)
_INSTANCE: Final = "mig-"
_SHARE: Final = re.compile(r"::\d+$")
_HASH_DIGITS: Final = 8


class Kind(StrEnum):
    UUID = "uuid"
    PCI = "pci"
    FILE = "file"
    SERIAL = "serial"
    PLACE = "place"
    PAIR = "pair"
    PORT = "port"


class Sameness(IntEnum):
    """UNKNOWN: the identities have nothing comparable, or all common tokens may belong to another device as well. OVERLAPPING: two
    devices with a part in common, such as two pairs of sticks with one stick in both. From the same device to another one.
    """

    SAME = 0
    UNKNOWN = 1
    OVERLAPPING = 2
    OTHER = 3


class Identity(Struct, frozen=True, omit_defaults=True, rename="pascal"):
    """Renamed as in the checkpoint's file. is_shared: several containers may hold it, so it conflicts only with one that is not."""

    tokens: tuple[str, ...]
    is_shared: bool = False

    def after_boot(self) -> "Identity":
        """The part that stays valid after a boot of the node."""
        return Identity(lasting(self.tokens), self.is_shared)

    def when_gone(self) -> "Identity":
        """The identity of a device that left the list: only the port stays if the device is selected by its port."""
        if not any(token.startswith(_BY_PORT) for token in self.tokens):
            return self
        return Identity(tuple(t for t in self.tokens if t.startswith((_BY_PORT, _PORT))), self.is_shared)


# -- tokens -----------------------------------------------------------------------------------------------------------------


def kind_of(token: str) -> Kind:
    match = _FORMS.match(token)
    return Kind(match.lastgroup) if match and match.lastgroup else Kind.UUID


def is_number(token: str) -> bool:
    return _NUMBER.fullmatch(token) is not None


def is_lasting(token: str) -> bool:
    """Whether a token means the same device after a boot."""
    return not token.startswith((_PATH, _DEVICES)) and not is_number(token)


def lasting(tokens: Iterable[str]) -> tuple[str, ...]:
    return tuple(filter(is_lasting, tokens))


def path_token(path: str) -> str:
    return _PATH + path


def iommu_token(group: str) -> str:
    """The token of an IOMMU group: only one process can use its devices."""
    return f"{_PAIR}iommu:{group}:vfio"


def hub_token(place: str) -> str:
    return _HUB + place


def port_tokens(port: str) -> tuple[str, str]:
    return _PORT + port, _BY_PORT + port


def with_serial_alone(token: str) -> str:
    """The former token of a USB device, from before another device with its serial appeared; empty for other tokens."""
    match = _REPEATED.fullmatch(token)
    return f"{match[1]}{match[2] or ''}" if match else ""


def uuid_of(text: str) -> str | None:
    """The UUID in the ID of a device or a share, in small letters, or None."""
    match = _UUID.fullmatch(text)
    if match is None or not match[2].strip("0-"):
        return None
    return f"{match[1]}{match[2]}{match[3] or ''}".lower()


def base_id(device_id: str) -> str:
    """The device ID without its share suffix."""
    match = _UUID.fullmatch(device_id)
    return device_id[: match.end(3) if match[3] else match.end(2)] if match else _SHARE.sub("", device_id)


def is_instance(token: str) -> bool:
    """Whether the token is the UUID of a MIG instance, not of a GPU. token: in small letters."""
    return token.startswith(_INSTANCE)


def own_serial(token: str) -> tuple[str, str] | None:
    """Vendor and serial number in a token of a USB device, if no other device has the serial number."""
    place = _place(token, "")
    if place is None or place.is_hub or not (place.is_own and place.serial):
        return None
    return place.vendor, place.serial


def made_id(device_id: str, tokens: Collection[str], most: int) -> str:
    """A replacement for an ID that another device has; equal for equal tokens. most: characters of the base."""
    digest = hashlib.sha256("\n".join(lasting(tokens) or tokens).encode()).hexdigest()[:_HASH_DIGITS]
    part = parent_and_number(device_id)
    base = f"{(part[0] if part else device_id)[:most]}-{digest}"
    return part_id(base, part[1]) if part else base


# -- the comparison -----------------------------------------------------------------------------------------------------------


def compare(one: Collection[str], other: Collection[str]) -> Sameness:
    """Whether two identities belong to one device. Symmetric. Devices of several parts are the same if one side has all parts of
    the other: an edit of the configuration adds or removes files. Different UUIDs of one maker, or different PCI addresses, always
    mean two devices: ports of an adapter share a serial number, partitions of a GPU a PCI address. Different serial numbers decide
    nothing: a driver may write them in another form, or report the number of a board. One selected by its port may be any device.
    """
    if one == other and any(map(is_lasting, one)):
        return Sameness.SAME
    tables = {kind: [[_compared(a, b) for b in others] for a in mine] for kind, mine, others in _comparable(one, other)}
    wholes = {kind: _whole(table) for kind, table in tables.items()}
    whole = max(wholes.values(), default=Sameness.UNKNOWN)
    if whole is not Sameness.OTHER or Sameness.OTHER in (wholes.get(Kind.UUID), wholes.get(Kind.PCI)):
        return whole
    have_common = any(found is not Sameness.OTHER for table in tables.values() for row in table for found in row)
    is_by_port = any(token.startswith(_BY_PORT) for token in (*one, *other))
    return Sameness.OVERLAPPING if have_common or is_by_port else Sameness.OTHER


def same_device(stored: Collection[str], now: Collection[str]) -> Sameness:
    """Whether a name still leads to its stored device. A stored identity with a port means any device in that port."""
    meant = [_PORT + token.removeprefix(_BY_PORT) for token in stored if token.startswith(_BY_PORT)]
    if not meant or stored == now:
        return compare(stored, now)
    places = [token for token in now if token.startswith(_PORT)]
    if not places:
        return Sameness.UNKNOWN
    are_all = all(any(_are_related(place, other) for other in places) for place in meant)
    return Sameness.SAME if are_all else Sameness.OTHER


def is_moved(stored: Collection[str], now: Collection[str]) -> bool:
    """Whether this is certainly the whole stored device, under another name."""
    return same_device(stored, now) is Sameness.SAME and _shape(stored) == _shape(now)


# -- internals ------------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The place of a device; for USB, its vendor, product and serial. within: the place in the USB device, or the whole place.

    serial: may be empty. port: of a USB device. is_own: whether no other USB device has its vendor, product and serial.
    """

    is_usb: bool
    within: str
    is_hub: bool = False
    vendor: str = ""
    product: str = ""
    serial: str = ""
    port: str = ""
    is_own: bool = False


_Part = _Place | frozenset[str] | str


def _comparable(one: Iterable[str], other: Iterable[str]) -> Iterator[tuple[Kind, list[_Part], list[_Part]]]:
    """The parts of both sides by kind; device numbers only if neither side has a lasting token."""
    mine, others = _parts(one), _parts(other)
    if not mine and not others:
        mine, others = _numbers(one), _numbers(other)
    return ((kind, parts, others[kind]) for kind, parts in mine.items() if parts and others.get(kind))


def _numbers(tokens: Iterable[str]) -> dict[Kind, list[_Part]]:
    return {Kind.FILE: [token for token in tokens if kind_of(token) is not Kind.SERIAL]}


def _parts(tokens: Iterable[str]) -> dict[Kind, list[_Part]]:
    """The lasting parts by kind. Places in a port decide nothing; neither do serial numbers, whose form depends on the source."""
    by_kind: dict[Kind, list[str]] = defaultdict(list)
    for token in tokens:
        if not token.startswith(_DEVICES):
            by_kind[kind_of(token)].append(token)
    ports = {token.split("/")[2] for token in by_kind[Kind.PLACE] if token.startswith(_PORT)}
    port = ports.pop() if len(ports) == 1 else ""
    places = [place for token in by_kind[Kind.PLACE] if (place := _place(token, port)) is not None]
    parts: dict[Kind, list[_Part]] = {Kind.PLACE: [*places], Kind.PAIR: [*by_kind[Kind.PAIR]]}
    parts |= {kind: [frozenset(by_kind[kind])] for kind in (Kind.UUID, Kind.PCI) if by_kind[kind]}
    return {kind: of_kind for kind, of_kind in parts.items() if of_kind}


def _place(token: str, port: str) -> _Place | None:
    """port: of the token's identity."""
    bare = token.removeprefix(_HUB)
    if bare.startswith(_LASTING):
        return _Place(False, bare)
    if not bare.startswith(_USB):
        return None
    name, _, within = bare.removeprefix(_USB).partition("/")
    words, _, own_port = name.partition("@")
    vendor, product, serial = (words + "::").split(":")[:3]
    return _Place(True, f"/{within}", bare != token, vendor, product, serial, own_port or port, not own_port)


def _whole(table: Sequence[Sequence[Sameness]]) -> Sameness:
    """Whether all parts of one side are parts of the other side. table: a row for each part of one side."""
    columns: Iterable[tuple[Sameness, ...]] = zip(*table, strict=True)
    return min(max(map(min, table)), max(map(min, columns)))


def _compared(one: _Part, other: _Part) -> Sameness:
    if isinstance(one, _Place) and isinstance(other, _Place):
        return _compared_places(one, other)
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        return _compared_names(one, other)
    return Sameness.SAME if _are_related(str(one), str(other)) else Sameness.OTHER


def _compared_names(one: frozenset[str], other: frozenset[str]) -> Sameness:
    """Compare UUIDs or PCI addresses; only equal forms decide. A MIG instance also has its GPU's UUID."""
    if one == other:
        return Sameness.SAME
    mine, others = _by_form(one), _by_form(other)
    if any(mine[form].isdisjoint(others[form]) for form in mine.keys() & others.keys()):
        return Sameness.OTHER
    return Sameness.UNKNOWN if one.isdisjoint(other) else Sameness.SAME


def _by_form(names: Iterable[str]) -> dict[str, set[str]]:
    """UUIDs by their maker's form, because UUIDs of two makers cannot be compared. PCI addresses have one form."""
    forms: dict[str, set[str]] = defaultdict(set)
    for name in names:
        match = _UUID.fullmatch(name)
        forms[match[1].lower() if match else re.split("[-:]", name)[0]].add(name)
    return forms


def _compared_places(one: _Place, other: _Place) -> Sameness:
    if (one.is_usb, one.is_hub, one.serial) != (other.is_usb, other.is_hub, other.serial):
        return Sameness.OTHER
    is_one_product = (one.vendor, one.product) == (other.vendor, other.product)
    # other firmware of one device may have other interfaces
    if is_one_product and not _are_related(one.within, other.within):
        return Sameness.OTHER
    if one.vendor != other.vendor:
        # in one port without a serial: a boot loader, or another stick
        return Sameness.UNKNOWN if not one.serial and one.port == other.port else Sameness.OTHER
    if (one.is_own and one.serial and other.is_own) or not one.is_usb:
        return Sameness.SAME
    if one.port and one.port == other.port:
        return Sameness.SAME
    # no serial, or a repeated one: in another port it may be any of these devices
    return Sameness.UNKNOWN if is_one_product or not (one.port and other.port) else Sameness.OTHER


def _are_related(one: str, other: str) -> bool:
    """Whether one place is equal to the other or within it; other tokens must be equal."""
    return one == other or one.startswith(f"{other.rstrip('/')}/") or other.startswith(f"{one.rstrip('/')}/")


def _shape(tokens: Iterable[str]) -> list[str]:
    """All parts of a device, without the port of a USB device and without the number of devices with its serial."""
    parts = (part for of_kind in _parts(tokens).values() for part in of_kind)
    return sorted(part.within if isinstance(part, _Place) else " ".join(sorted(part)) for part in parts)
