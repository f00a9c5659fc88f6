"""Which of several devices that are one is offered: devices are one if their identities say so, whatever they are called. Pure.

Whoever holds a device has it. Of free ones the exclusive one goes before those that may be shared, then the configuration's
priority counts, the resource's name, and the place in the list: the same choice after every restart.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.resources.identity import Identity

# the resource's name, and the device's ID
Key = tuple[str, str]
# a device number, the kernel's own path, or a place with its numbers, which go to another device after a boot
_OF_THIS_BOOT = re.compile(r"[cb]\d+:\d+|path:.*|/devices/.*")
# Before a place within a USB device: its vendor, product and serial, and, where others have these too, @ and its port.
_USB = "/usb/"
# the beginning of the token of what is selected by its port, whatever is plugged in there, and of all places in ports
_BY_PORT, _PORT = "by port ", "/port/"


class Claim(Struct, frozen=True):
    """A device that is held or offered. parent: of its use in one way at a time, with its scope; None where it has none.

    is_listed: whether its identity is that of now, and not of when it was listed last.
    """

    key: Key
    identity: Identity
    parent: tuple[str, str] | None = None
    is_listed: bool = True


def winners(held: Iterable[Claim], offered: Iterable[Claim]) -> dict[Key, Claim]:
    """By key of each device that is not to be given out: the one that is the same device, and held or preferred.

    offered: free ones, in the order of preference.
    """
    taken = _Taken()
    for claim in held:
        taken.add(claim)
    lost: dict[Key, Claim] = {}
    for claim in sorted(offered, key=lambda claim: claim.identity.is_shared):
        winner = taken.same(claim)
        if winner is None:
            taken.add(claim)
        else:
            lost[claim.key] = winner
    return lost


def after_boot(identity: Identity) -> Identity:
    """What is still true after a boot of the node."""
    tokens = tuple(token for token in identity.tokens if not _OF_THIS_BOOT.fullmatch(token))
    return Identity(tokens, identity.is_shared)


def when_gone(identity: Identity) -> Identity:
    """Of a device that is not listed any more: of one selected by its port, what was in there is no part of it now."""
    if not _is_by_port(identity):
        return identity
    return Identity(tuple(t for t in identity.tokens if t.startswith((_BY_PORT, _PORT))), identity.is_shared)


class _Taken:
    """Claims by what they are."""

    def __init__(self) -> None:
        # of the parts of one device, which are alike, one stands for all: a GPU may have a thousand
        self._kinds: set[tuple[Identity, tuple[str, str] | None]] = set()
        self._by_token: dict[str, list[Claim]] = {}
        # by each place above a claimed one
        self._below: dict[str, list[Claim]] = {}

    def add(self, claim: Claim) -> None:
        kind = claim.identity, claim.parent
        if claim.identity.is_shared and claim.identity.tokens and kind in self._kinds:
            return
        self._kinds.add(kind)
        for token in claim.identity.tokens:
            self._by_token.setdefault(token, []).append(claim)
            for place in _above(token):
                self._below.setdefault(place, []).append(claim)

    def same(self, claim: Claim) -> Claim | None:
        """The first one that is the same device, and with which it cannot be given out."""
        return next((other for other in self._related(claim) if _excludes(other, claim)), None)

    def _related(self, claim: Claim) -> Iterator[Claim]:
        for token in claim.identity.tokens:
            yield from self._by_token.get(token, ())
            yield from self._below.get(token, ())
            for place in _above(token):
                yield from self._by_token.get(place, ())


def _excludes(one: Claim, other: Claim) -> bool:
    if one.key == other.key:
        return False
    # Uses of one physical device exclude each other by rules of their own; but an instance of it may be listed by another resource
    # than the one that it is held by.
    if one.parent is not None and one.parent == other.parent:
        return one.key[1] == other.key[1]
    if one.identity.is_shared and other.identity.is_shared:
        return False
    # What is listed with one number or place at one time is one device: of two serials, one is of a list that is not renewed yet.
    are_both_listed = one.is_listed and other.is_listed
    return are_both_listed or not _are_different_usb(one.identity, other.identity)


def _are_different_usb(one: Identity, other: Identity) -> bool:
    """Whether a number or a place of one device has passed to another, as their serials show. A port is that of any device."""
    if _is_by_port(one) or _is_by_port(other):
        return False
    mine, others = _usb_devices(one), _usb_devices(other)
    return bool(mine and others) and not any(_may_be_one(a, b) for a in mine for b in others)


def _is_by_port(identity: Identity) -> bool:
    return any(token.startswith(_BY_PORT) for token in identity.tokens)


def _usb_devices(identity: Identity) -> set[tuple[str, str, str]]:
    """Vendor, serial and port; each empty where it is not known. The product changes with a device's firmware."""
    found = set()
    for token in identity.tokens:
        if token.startswith(_USB):
            words, _, port = token.split("/")[2].partition("@")
            vendor, _, serial = (words + "::").split(":")[:3]
            found.add((vendor, serial, port))
    return found


def _may_be_one(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    (vendor, serial, port), (other_vendor, other_serial, other_port) = one, other
    if serial != other_serial or (port and other_port and port != other_port):
        return False
    # without a serial it is what is in its port, also with the vendor of another firmware
    return not serial or vendor == other_vendor


def _above(token: str) -> Iterator[str]:
    """The places that a place in sysfs is in; none for other tokens."""
    if token.startswith("/"):
        place = token.rpartition("/")[0]
        while place:
            yield place
            place = place.rpartition("/")[0]
