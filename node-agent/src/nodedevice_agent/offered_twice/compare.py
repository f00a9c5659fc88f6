"""Finds the devices that two sources of a node offer. Pure, linear in the devices, and in steps, so that its caller can pause.

Two entries with a common identity are one device, with two exceptions. An identity that several devices of one source share
identifies none of them. Examples: the address of a PF in its VFs, a file of all devices of a driver, a repeated serial number.
Devices with different UUIDs or PCI addresses are different. Sources of one program are not compared, because a program knows
its own alternatives: built-in plugins withhold such devices (InOtherUse). Two resources of the kubelet with different domains
belong to two programs. So do a resource of the kubelet and one of the agent, because neither device manager knows the other's
allocations.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, product
from typing import Final

from msgspec import Struct, field

from nodedevice_agent.devicemanager.resources.devices import NOTHING
from nodedevice_agent.identity import Kind, Sameness, compare, kind_of, lasting
from nodedevice_agent.offered_twice.sources import Source

# several IDs: the device is one of them, because the files of a container's devices are known only together
DeviceIDs = tuple[str, ...]
_NOBODYS: Final[DeviceIDs] = ()
# further sources of one device are compared only with the first ones
_MOST_COMPARED: Final = 8
_MOST_CANDIDATES: Final = 64
_MOST_SHARED: Final = 1024
# The most counted devices of two sources, as many as a NodeDevice lists.
MOST_DEVICES: Final = 4096


class Offer(Struct, frozen=True):
    """The devices of one NodeDevice.

    program: the process that offers them; it is never compared with itself. scope: an identity of two devices in one scope is
    ignored. driver: the DRA driver.

    devices: the source's list by ID; the same object while the list is unchanged. is_offered: whether a pod holds or can get
    the device. known: tokens by device ID. held: devices that are held together, with tokens that each belong to one of them.
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
    """The devices that one NodeDevice shares with another. devices: sorted pairs, here and there; one of several IDs.

    held_here, held_there, held_twice: the number held by pods.
    """

    other: Offer
    devices: tuple[tuple[DeviceIDs, DeviceIDs], ...]
    held_here: int
    held_there: int
    held_twice: int


# by resource name
Findings = dict[str, tuple[Finding, ...]]
# the number of an offer, and the candidates among its devices
_Entry = tuple[int, DeviceIDs]
# scope, known and held of an offer
_Input = tuple[str, Mapping[str, tuple[str, ...]], Sequence[tuple[DeviceIDs, tuple[str, ...]]]]


class Kept(Struct):
    """State from one comparison for the next.

    shared: by scope, files that two devices had at the same time. Such a file identifies no device, even after one of the pods
    has ended. inputs, common: the identities of all offers, and those in several scopes. The search is skipped while they are
    equal, for example after a change of health. The caller keeps the identities of a list while the list is unchanged.
    """

    shared: dict[str, set[str]] = field(default_factory=dict)
    inputs: list[_Input] = field(default_factory=list)
    common: list[list[_Entry]] = field(default_factory=list)


def find(offers: Sequence[Offer], kept: Kept) -> Generator[None, None, Findings]:
    """Find devices that two programs offer. Yields after steps of about equal work."""
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
    """The entries of each identity that several scopes have."""
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
    """Add the candidates of an identity; with several entries, only common candidates stay."""
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
    """The entries of each identity in several scopes; an empty list after each step. The longest scope is not copied."""
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
    """Pairs of two programs. If there are very many entries, each is paired with one of another program."""
    if len(entries) <= _MOST_COMPARED:
        found: Iterator[tuple[_Entry, _Entry]] = combinations(entries, 2)
    else:
        first = entries[0]
        second = next((e for e in entries if offers[e[0]].program != offers[first[0]].program), first)
        # in the order of the entries, so that each pair occurs once
        found = iter({(min(a, e), max(a, e)) for e in entries for a in (first, second) if a is not e})
    return ((one, other) for one, other in found if offers[one[0]].program != offers[other[0]].program)


def _same(offers: Sequence[Offer], one: _Entry, other: _Entry) -> tuple[DeviceIDs, DeviceIDs] | None:
    """The candidates that a pod can get and that are not known to be different devices."""
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
    """Drop a pair of several candidates if an exact pair is among them."""
    exact = {(here[0], there[0]) for here, there in devices if len(here) == len(there) == 1}
    return tuple(
        sorted(
            (here, there)
            for here, there in devices
            if len(here) == len(there) == 1 or exact.isdisjoint(islice(product(here, there), _MOST_CANDIDATES))
        )
    )
