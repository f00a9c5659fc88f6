"""Whether a stored name of a device still leads to the device that it was stored for. Pure.

A name is what the kernel or a driver numbers anew: /dev/ttyUSB2, the minor number of /dev/nvidia1, a MIG capability file. With the
name the identity of its device is stored, and compared with the identity of what the name leads to now. Device manager, built-in
plugins and readers of CDI specifications all decide by this module.
Identities are tokens; see `identity` of DeviceDetails in device_details.proto. Tokens that last over a replug and a boot decide:
UUIDs, USB devices by vendor, product and serial, ports, places without the kernel's numbers. Device numbers and places in sysfs
decide only where neither side has a lasting token, as they pass from one device to another.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

# a device number, the kernel's own path, or a place with its numbers, which go to another device after a boot
_OF_THIS_BOOT: Final = re.compile(r"[cb]\d+:\d+|path:.*|/devices/.*")
_HUB: Final = "hub "
# Before a place within a USB device: its vendor, product and serial, and, where others have these too, @ and its port.
_USB: Final = "/usb/"
# one with a serial, and with its port
_REPEATED: Final = re.compile(r"(/usb/[^:/]*:[^:/]*:[^@/]+)@[^/]*(/.*)?")
# before a place within whatever is in a port
PORT: Final = "/port/"
_LASTING: Final = "/lasting/"
_PAIR: Final = "pair:"
# of a device that is whatever is plugged in there, before the port
BY_PORT: Final = "by port "


class Sameness(Enum):
    """UNKNOWN: the two identities have nothing that could be compared, or what they have may be another device's too."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"


class _Place(NamedTuple):
    """Where a device is, or what it is where that is USB. within: the place in the USB device, or the whole place.

    serial: empty for none. port: of a USB device. is_own: whether no other USB device has its vendor, product and serial.
    """

    is_usb: bool
    within: str
    is_hub: bool = False
    vendor: str = ""
    product: str = ""
    serial: str = ""
    port: str = ""
    is_own: bool = False


# what is compared: a place, the UUIDs of an identity, or any other token
_Part = _Place | frozenset[str] | str


def same_device(stored: Collection[str], now: Collection[str]) -> Sameness:
    """Compare the identity that was stored with a name and the identity of what the name leads to now.

    A device of several parts is the same one where all parts of one side are parts of the other: a file more or less is an edit of
    the configuration.
    """
    if stored == now and any(map(is_lasting, stored)):
        return Sameness.SAME
    if ports := _ports_meant(stored):
        return _all_related(ports, [token for token in now if token.startswith(PORT)])
    found = [_whole(a, b) for a, b in _comparable(stored, now)]
    return _worst(found) if found else Sameness.UNKNOWN


def may_be_one(one: Collection[str], other: Collection[str]) -> bool:
    """Whether two devices may have a part in common, for all that is known."""
    if any(token.startswith(BY_PORT) for token in (*one, *other)):
        return True
    found = [[_compared(a, b) for a in mine for b in others] for mine, others in _comparable(one, other)]
    return not found or any(each is not Sameness.OTHER for of_kind in found for each in of_kind)


def is_moved(stored: Collection[str], now: Collection[str]) -> bool:
    """Whether this is certainly the stored device, and the whole of it: what a name stood for, found under another name."""
    return same_device(stored, now) is Sameness.SAME and _shape(stored) == _shape(now)


def is_lasting(token: str) -> bool:
    """Whether a token means the same device after a boot."""
    return not _OF_THIS_BOOT.fullmatch(token)


def with_serial_alone(token: str) -> str:
    """Of a USB device whose serial others have too: the token that it had before that was seen; empty for any other token."""
    match = _REPEATED.fullmatch(token)
    return f"{match[1]}{match[2] or ''}" if match else ""


# -- internals ------------------------------------------------------------------------------------------------------------


def _ports_meant(stored: Iterable[str]) -> list[str]:
    """The places that count, where whatever is in a port is meant."""
    return [f"{PORT}{token.removeprefix(BY_PORT)}" for token in stored if token.startswith(BY_PORT)]


def _all_related(meant: Sequence[str], places: Sequence[str]) -> Sameness:
    if not places:
        return Sameness.UNKNOWN
    are_all = all(any(_are_related(place, other) for other in places) for place in meant)
    return Sameness.SAME if are_all else Sameness.OTHER


def _comparable(one: Iterable[str], other: Iterable[str]) -> Iterator[tuple[list[_Part], list[_Part]]]:
    """What both sides have of each kind; numbers only where neither has anything that lasts."""
    mine, others = _kinds(one), _kinds(other)
    if not mine and not others:
        mine, others = {"": [*one]}, {"": [*other]}
    for kind, parts in mine.items():
        if parts and others.get(kind):
            yield parts, others[kind]


def _kinds(tokens: Iterable[str]) -> dict[str, list[_Part]]:
    tokens = [token for token in tokens if is_lasting(token)]
    ports = {token.split("/")[2] for token in tokens if token.startswith(PORT)}
    port = ports.pop() if len(ports) == 1 else ""
    uuids = frozenset(token for token in tokens if _is_uuid(token))
    found: dict[str, list[_Part]] = {
        "place": [place for token in tokens if (place := _place(token, port)) is not None],
        "uuid": [uuids] if uuids else [],
        "pair": [token for token in tokens if token.startswith(_PAIR)],
    }
    return {kind: parts for kind, parts in found.items() if parts}


def _is_uuid(token: str) -> bool:
    return not token.startswith(("/", _HUB, _PAIR, BY_PORT))


def _place(token: str, port: str) -> _Place | None:
    """port: of the identity that the token is of."""
    bare = token.removeprefix(_HUB)
    if bare.startswith(_LASTING):
        return _Place(False, bare)
    if not bare.startswith(_USB):
        return None
    name, _, within = bare.removeprefix(_USB).partition("/")
    words, _, own_port = name.partition("@")
    vendor, product, serial = (words + "::").split(":")[:3]
    return _Place(True, f"/{within}", bare != token, vendor, product, serial, own_port or port, not own_port)


def _whole(mine: Sequence[_Part], others: Sequence[_Part]) -> Sameness:
    """Whether all parts of one side are parts of the other side."""
    table = [[_compared(a, b) for b in others] for a in mine]
    forth = _worst(_best(row) for row in table)
    back = _worst(_best(column) for column in zip(*table, strict=True))
    return _best((forth, back))


def _best(found: Iterable[Sameness]) -> Sameness:
    return min(found, key=(Sameness.SAME, Sameness.UNKNOWN, Sameness.OTHER).index)


def _worst(found: Iterable[Sameness]) -> Sameness:
    return max(found, key=(Sameness.SAME, Sameness.UNKNOWN, Sameness.OTHER).index)


def _compared(one: _Part, other: _Part) -> Sameness:
    """Of one kind."""
    if isinstance(one, _Place) and isinstance(other, _Place):
        return _compared_places(one, other)
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        # an instance has its GPU's UUID beside its own
        return Sameness.SAME if one <= other or other <= one else Sameness.OTHER
    return Sameness.SAME if _are_related(str(one), str(other)) else Sameness.OTHER


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
    # several devices have no serial, or one serial: in another port it may be any of them
    return Sameness.UNKNOWN if is_one_product or not (one.port and other.port) else Sameness.OTHER


def _are_related(one: str, other: str) -> bool:
    """Whether one place is the other, or is in it; for what is no place, whether both are the same."""
    return one == other or one.startswith(f"{other.rstrip('/')}/") or other.startswith(f"{one.rstrip('/')}/")


def _shape(tokens: Iterable[str]) -> list[str]:
    """All parts of a device, in words that do not depend on where a USB device is, and on how many have its serial."""
    parts = (part for of_kind in _kinds(tokens).values() for part in of_kind)
    return sorted(part.within if isinstance(part, _Place) else " ".join(sorted(part)) for part in parts)
