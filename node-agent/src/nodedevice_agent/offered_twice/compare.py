"""Finds the devices that two sources of a node offer. Pure, linear in the devices, and in steps, so that its caller can pause.

One identity in common makes two devices one, with two exceptions. An identity that several devices of one source have identifies
none of them: the address of a PF that its VFs name, a file of all devices of a driver, a serial number that a maker gives twice.
And two devices that say themselves that they are different, by UUIDs or PCI addresses, are.
Sources of one program are not compared: what it offers in several ways is its own affair. Built-in plugins hold such devices back
(InOtherUse), a driver or a vendor's plugin knows its alternatives. Two resources of the kubelet with names of two domains are of
two programs; so are one of the kubelet's and one of ours, as neither device manager knows what the other has given out.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.devicemanager.resources.devices import NOTHING
from nodedevice_agent.identity import Kind, Sameness, compare, kind_of, lasting
from nodedevice_agent.offered_twice.sources import Source

# of which it is one, where a container holds several devices and their files are known together
DeviceIDs = tuple[str, ...]
_NOBODYS: Final[DeviceIDs] = ()
# more sources of one device than this are compared with the first ones alone
_MOST_COMPARED: Final = 8
_MOST_CANDIDATES: Final = 64
_MOST_SHARED: Final = 1024
# Of two sources; more are not counted. A NodeDevice lists as many.
MOST_DEVICES: Final = 4096


class Offer(Struct, frozen=True):
    """What one NodeDevice has. program: who offers it, never compared with itself. scope: within which an identity that two
    devices have is none. driver: of DRA.

    devices: as the source lists them, by ID; the same object as long as the list is the same. is_offered: whether a pod can get the
    device, or holds it. known: tokens by device ID, where there are any. held: devices that are held together, and tokens of which
    each is that of one of them.
    """

    resource_name: str
    source: Source
    program: str
    scope: str
    devices: Mapping[str, object]
    is_offered: Callable[[str], bool]
    is_held: Callable[[str], bool]
    known: Mapping[str, tuple[str, ...]] = NOTHING
    held: Sequence[tuple[DeviceIDs, tuple[str, ...]]] = ()
    driver: str = ""


class Finding(Struct, frozen=True):
    """Of one NodeDevice: what it has in common with another. devices: here and there, sorted; of several IDs it is one.

    held_here, held_there, held_twice: how many of them pods hold.
    """

    other: Offer
    devices: tuple[tuple[DeviceIDs, DeviceIDs], ...]
    held_here: int
    held_there: int
    held_twice: int


# by resource name
Findings = dict[str, tuple[Finding, ...]]
# the number of an offer, and which of its devices it may be
_Entry = tuple[int, DeviceIDs]
# of an offer: scope, known, held
_Input = tuple[str, Mapping[str, tuple[str, ...]], Sequence[tuple[DeviceIDs, tuple[str, ...]]]]


class Kept(Struct):
    """What a comparison keeps for the next one.

    shared: by scope, files that two devices of it had at the same time. A file that two shares of a device had is nobody's when one
    pod has ended, either. inputs, common: what the offers said, and which of it several said. While that is the same, as it is when
    a device breaks, nothing is looked for again. The caller keeps what is known of a list as long as the list is the same.
    """

    shared: dict[str, set[str]] = field(default_factory=dict)
    inputs: list[_Input] = field(default_factory=list)
    common: list[list[_Entry]] = field(default_factory=list)


def find(offers: Sequence[Offer], kept: Kept) -> Generator[None, None, Findings]:
    """Yields now and then, after about the same amount of work."""
    if len({offer.program for offer in offers}) < 2:
        return {}
    inputs = [(offer.scope, offer.known, offer.held) for offer in offers]
    if inputs != kept.inputs:
        kept.common = yield from _in_common(offers, kept.shared)
        kept.inputs = inputs
    pairs: dict[tuple[int, int], dict[tuple[DeviceIDs, DeviceIDs], None]] = {}
    for entries in kept.common:
        for one, other in _compared(offers, entries):
            of_both = pairs.setdefault((one[0], other[0]), {})
            if len(of_both) < MOST_DEVICES and (found := _same(offers, one, other)) is not None:
                of_both[found] = None
        yield
    return (yield from _findings(offers, pairs))


def _in_common(offers: Sequence[Offer], shared: dict[str, set[str]]) -> Generator[None, None, list[list[_Entry]]]:
    """Of each identity that several scopes know, what they say."""
    by_scope: dict[str, dict[str, _Entry]] = {}
    for number, offer in enumerate(offers):
        known = by_scope.setdefault(offer.scope, {})
        for ids, identities in chain((((device_id,), each) for device_id, each in offer.known.items()), offer.held):
            for identity in identities:
                _note(known, identity, (number, ids))
            yield
    for scope, known in by_scope.items():
        yield from _without_shared(known, shared.setdefault(scope, set()))
    for scope in shared.keys() - by_scope.keys():
        del shared[scope]
    common = []
    for entries in _of_several(by_scope):
        if len(entries) > 1:
            common.append(entries)
        yield
    return common


def _note(known: dict[str, _Entry], identity: str, entry: _Entry) -> None:
    """It is one of these devices; and where more is said of it, one that is among all that are named."""
    before = known.get(identity)
    if before is None:
        known[identity] = entry
    elif before[0] != entry[0]:
        known[identity] = entry[0], _NOBODYS
    elif before[1] != entry[1]:
        known[identity] = entry[0], tuple(device_id for device_id in before[1] if device_id in entry[1])


def _without_shared(known: dict[str, _Entry], shared: set[str]) -> Iterator[None]:
    for identity, (number, ids) in known.items():
        if kind_of(identity) is Kind.FILE:
            if not ids and len(shared) < _MOST_SHARED:
                shared.add(identity)
            elif identity in shared:
                known[identity] = number, _NOBODYS
        yield


def _of_several(by_scope: Mapping[str, Mapping[str, _Entry]]) -> Iterator[list[_Entry]]:
    """What scopes say of one identity, but for those of the longest alone, which is not copied; nothing now and then."""
    longest, *others = sorted(by_scope.values(), key=len, reverse=True)
    found: dict[str, list[_Entry]] = {}
    for known in others:
        for identity, entry in known.items():
            if entry[1]:
                found.setdefault(identity, []).append(entry)
            yield []
    for identity, entries in found.items():
        last = longest.get(identity)
        if last is not None and last[1]:
            entries.append(last)
        yield sorted(entries)


def _compared(offers: Sequence[Offer], entries: Sequence[_Entry]) -> Iterator[tuple[_Entry, _Entry]]:
    """Pairs of two programs. Of very many, each with one of another program: so it is known of each."""
    if len(entries) <= _MOST_COMPARED:
        found: Iterator[tuple[_Entry, _Entry]] = combinations(entries, 2)
    else:
        first = entries[0]
        second = next((e for e in entries if offers[e[0]].program != offers[first[0]].program), first)
        # each in the order of entries, so that no pair comes twice
        found = iter({(min(a, e), max(a, e)) for e in entries for a in (first, second) if a is not e})
    return ((one, other) for one, other in found if offers[one[0]].program != offers[other[0]].program)


def _same(offers: Sequence[Offer], one: _Entry, other: _Entry) -> tuple[DeviceIDs, DeviceIDs] | None:
    """Of the devices that it may be, those that are not known to be different and that a pod can get."""
    mine = [i for i in one[1] if offers[one[0]].is_offered(i)]
    others = [i for i in other[1] if offers[other[0]].is_offered(i)]
    here, there = offers[one[0]].known, offers[other[0]].known
    candidates = [
        (a, b)
        for a, b in islice(product(mine, others), _MOST_CANDIDATES)
        if compare(lasting(here.get(a, ())), lasting(there.get(b, ()))) is not Sameness.OTHER
    ]
    if not candidates:
        return None
    return tuple(sorted({a for a, _ in candidates})), tuple(sorted({b for _, b in candidates}))


def _findings(
    offers: Sequence[Offer], pairs: Mapping[tuple[int, int], Collection[tuple[DeviceIDs, DeviceIDs]]]
) -> Generator[None, None, Findings]:
    found: dict[str, list[Finding]] = {}
    for (one, other), devices in pairs.items():
        yield
        if not devices:
            continue
        known = _without_less_exact(devices)
        mirrored = tuple(sorted((there, here) for here, there in known))
        found.setdefault(offers[one].resource_name, []).append(_finding(offers[one], offers[other], known))
        found.setdefault(offers[other].resource_name, []).append(_finding(offers[other], offers[one], mirrored))
    return {name: tuple(sorted(each, key=lambda f: f.other.resource_name)) for name, each in found.items()}


def _finding(here: Offer, there: Offer, devices: tuple[tuple[DeviceIDs, DeviceIDs], ...]) -> Finding:
    held = [(any(map(here.is_held, mine)), any(map(there.is_held, others))) for mine, others in devices]
    return Finding(
        there,
        devices,
        held_here=sum(is_here for is_here, _ in held),
        held_there=sum(is_there for _, is_there in held),
        held_twice=held.count((True, True)),
    )


def _without_less_exact(
    devices: Collection[tuple[DeviceIDs, DeviceIDs]],
) -> tuple[tuple[DeviceIDs, DeviceIDs], ...]:
    """Where a file says that it is one of several, and an ID which one, the latter."""
    exact = {(here[0], there[0]) for here, there in devices if len(here) == len(there) == 1}
    return tuple(
        sorted(
            (here, there)
            for here, there in devices
            if len(here) == len(there) == 1 or exact.isdisjoint(islice(product(here, there), _MOST_CANDIDATES))
        )
    )
