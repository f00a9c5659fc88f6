"""Which of several devices that are one is offered: devices are one if their identities say so, whatever they are called. Pure.

Whoever holds a device has it. Of free ones the exclusive one goes before those that may be shared, then the configuration's
priority counts, the resource's name, and the place in the list: the same choice after every restart.
"""

from collections.abc import Collection, Iterable

from msgspec import Struct

from nodedevice_agent.identity import Identity, Index, Sameness, compare, is_number

# the resource's name, and the device's ID
Key = tuple[str, str]


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
    taken, kinds = Index[Claim](), set[tuple[Identity, tuple[str, str] | None]]()

    def take(claim: Claim) -> None:
        # of the parts of one device, which are alike, one stands for all: a GPU may have a thousand
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
    """By number that a container has: the tokens of the device file that has this number now, as far as devices are listed with it.

    The kernel lets the container open what has the number, by any name, and no other file of the same device. So tokens of other
    files do not count where these are listed as devices of their own.
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
    # What is listed with one number or place at one time is one device: of two serials, one is of a list that is not renewed yet.
    are_both_listed = one.is_listed and other.is_listed
    return are_both_listed or compare(one.identity.tokens, other.identity.tokens) is not Sameness.OTHER
