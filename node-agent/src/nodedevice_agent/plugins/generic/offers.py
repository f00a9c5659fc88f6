"""Chooses which devices a resource lists if its groups offer one device under several names or in several ways. Pure.

Each device is listed once, as in the first group that has it, and the other IDs are its aliases. An exclusive offer goes before a
shared one: together they would give a file to several containers although one of them wants it exclusively.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from nodedevice_agent.identity import path_token, port_tokens
from nodedevice_agent.identity_index import Index
from nodedevice_agent.plugins.generic.found import Found, FoundFile, FoundFunction, Selected, found_functions
from nodedevice_agent.plugins.generic.settings import GroupSettings


class Offer(Struct, frozen=True):
    """A device as a group has it. group: its index. aliases: other IDs that lead to it.

    identity: tokens (see identity.py); none of what consists of files that come with devices. numbers: by path, of its own files.
    """

    id: str
    group: int
    whole: FoundFunction
    is_shared: bool
    identity: tuple[str, ...]
    numbers: tuple[tuple[str, str], ...]
    aliases: tuple[str, ...] = ()

    @property
    def own_numbers(self) -> frozenset[str]:
        """Numbers of all its own files, including files that come with devices."""
        return frozenset(_number(file) for file in self.whole.own_files)


class NotListed(Struct, frozen=True):
    """An offer that is not listed, and the one of the same device that is."""

    offer: Offer
    listed: Offer


class Choice(Struct, frozen=True):
    """The listed offers, and the offers that are dropped in favour of them."""

    listed: tuple[Offer, ...]
    not_listed: tuple[NotListed, ...]


def choose(groups: Sequence[GroupSettings], found: Found, selected: Selected) -> Choice:
    """found: the files that match each pattern; selected: the devices of groups that select, by the group's index."""
    # exclusive ones first, and as the groups are
    offers = sorted(_offers(groups, found, selected), key=lambda offer: offer.is_shared)
    known = Index[int]()
    listed: list[Offer] = []
    names: dict[str, int] = {}
    not_listed = []
    for offer in offers:
        same = _same(offer, known, listed)
        if not same and offer.id not in names:
            known.add(len(listed), _keys(offer))
            names[offer.id] = len(listed)
            listed.append(offer)
        elif len(same) == 1 and _is_alias(offer, listed[same[0]]):
            winner = listed[same[0]]
            aliases = dict.fromkeys((*winner.aliases, offer.id, *offer.aliases))
            listed[same[0]] = replace(winner, aliases=tuple(aliases))
        else:
            # or other files of a device that has one ID
            not_listed.append(NotListed(offer, listed[same[0] if same else names[offer.id]]))
    # with other files it was another device
    others = {each.offer.id for each in not_listed}
    listed = [
        replace(offer, aliases=tuple(alias for alias in offer.aliases if alias not in others)) for offer in listed
    ]
    return Choice(tuple(listed), tuple(not_listed))


def _offers(groups: Sequence[GroupSettings], found: Found, selected: Selected) -> Iterator[Offer]:
    """Offers sorted by group and ID: with several links to one file, the first one's ID is listed."""
    for index, group in enumerate(groups):
        wholes = [*found_functions(group, found), *selected.get(index, ())]
        for whole in sorted(wholes, key=lambda whole: whole.id):
            own = whole.own_files
            numbers = {file.path: _number(file) for file in own if file.is_device and not file.is_shared_file}
            yield Offer(
                whole.id,
                index,
                whole,
                group.is_shared,
                _identity(whole),
                tuple(sorted(numbers.items())),
                whole.aliases,
            )


def _same(offer: Offer, known: Index[int], listed: Sequence[Offer]) -> list[int]:
    """Listed offers that exclude this one."""
    same = [*dict.fromkeys(known.related(_keys(offer)))]
    if not offer.is_shared:
        return same
    # a shared device may also be offered in several ways
    return [i for i in same if not listed[i].is_shared or listed[i].own_numbers == offer.own_numbers]


def _is_alias(offer: Offer, listed: Offer) -> bool:
    """Whether a container with one device can get the other in its place; a part of a disk cannot replace the disk."""
    return offer.is_shared == listed.is_shared and not offer.own_numbers.isdisjoint(listed.own_numbers)


def _keys(offer: Offer) -> tuple[str, ...]:
    """Falls back to numbers: an offer of files that only come with devices is still listed once."""
    return offer.identity or tuple(offer.own_numbers)


def _identity(whole: FoundFunction) -> tuple[str, ...]:
    files = [file for file in whole.own_files if not file.is_shared_file]
    tokens = {token for file in files for token in file.tokens or (path_token(file.path),)}
    if whole.port and tokens:
        tokens |= {whole.port, *port_tokens(whole.port.rpartition("/")[2])}
    return tuple(sorted(tokens))


def _number(file: FoundFile) -> str:
    return file.number or next(iter(file.tokens), path_token(file.path))
