"""Selects which of several listed devices that are one device is offered, by their identities, not their names. Pure.

A device that a pod holds wins. Among free ones an exclusive device precedes shared ones. Then the configuration's priority decides,
then the resource's name, then the place in the list: the choice is the same after every restart.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from nodedevice_agent.identity import Identity, Sameness, compare, is_number
from nodedevice_agent.identity_index import Index

# the resource's name, and the device's ID
Key = tuple[str, str]


class Claim(Struct, frozen=True):
    """A held or offered device. parent: with its scope; it has one use at a time. is_listed: whether its identity is current."""

    key: Key
    identity: Identity
    parent: tuple[str, str] | None = None
    is_listed: bool = True


def winners(held: Iterable[Claim], offered: Iterable[Claim]) -> dict[Key, Claim]:
    """Map each device that must not be allocated to the same device that is held or preferred. offered: by preference."""
    taken, kinds = Index[Claim](), set[tuple[Identity, tuple[str, str] | None]]()

    def take(claim: Claim) -> None:
        # one part stands for all parts of one device, which are alike: a GPU may have a thousand
        kind = claim.identity, claim.parent
        if not claim.identity.is_shared or kind not in kinds:
            taken.add(claim, claim.identity.tokens)
        kinds.add(kind)

    for claim in held:
        take(claim)
    lost: dict[Key, Claim] = {}
    for claim in sorted(offered, key=lambda claim: claim.identity.is_shared):
        related = taken.related(claim.identity.tokens)
        winner = next((other for other in related if _excludes(other, claim)), None)
        if winner is None:
            take(claim)
        else:
            lost[claim.key] = winner
    return lost


def opened_files(numbers: Collection[str], listed: Iterable[Collection[str]]) -> dict[str, set[str]]:
    """Map each number in a container to the tokens of the listed device files that have this number now. The kernel lets the
    container open these by any name, but no other file of the same device: tokens of files that are listed as devices do not count.
    """
    found = {number: {number} for number in numbers}
    of_several = []
    for tokens in listed:
        if not found.keys().isdisjoint(tokens):
            own = [*filter(is_number, tokens)]
            if len(own) > 1:
                of_several.append((tokens, own))
            else:
                found[own[0]].update(tokens)
    others = {number: set[str]() for _, own in of_several for number in own}
    for tokens in listed if others else ():
        if not others.keys().isdisjoint(tokens) and len(own := [*filter(is_number, tokens)]) == 1:
            others[own[0]].update(tokens)
    for tokens, own in of_several:
        for number in found.keys() & own:
            found[number].update({*tokens}.difference(*(others[other] for other in own if other != number)))
    return found


def _excludes(one: Claim, other: Claim) -> bool:
    """Whether only one of two devices that have a token or a place in common can be allocated."""
    if one.key == other.key:
        return False
    # Uses of one physical device exclude each other by rules of their own; but an instance of it may be listed by another resource
    # than the one that it is held by.
    if one.parent is not None and one.parent == other.parent:
        return one.key[1] == other.key[1]
    if one.identity.is_shared and other.identity.is_shared:
        return False
    # Devices listed at the same time with one number or place are one device: of two serials, one is from an outdated list.
    are_both_listed = one.is_listed and other.is_listed
    return are_both_listed or compare(one.identity.tokens, other.identity.tokens) is not Sameness.OTHER
