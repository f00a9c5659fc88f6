"""Finds, among many identities, candidates for one device: by equal tokens, and by a place inside another. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Generic, TypeVar

from nodedevice_agent.identity import with_serial_alone

T = TypeVar("T")


class Index(Generic[T]):
    """Items by the tokens of their identities, so that a new item is compared only with its candidates."""

    def __init__(self) -> None:
        self._own = _Places[T]()
        # by tokens with a repeated serial, in the form of a unique serial
        self._alone = _Places[T]()

    def add(self, item: T, tokens: Collection[str]) -> None:
        self._own.add(item, tokens)
        self._alone.add(item, _with_serials_alone(tokens))

    def related(self, tokens: Iterable[str]) -> Iterator[T]:
        """Items with one of these tokens, or with a place in it or above it. An item may occur several times."""
        for token in tokens:
            yield from self._own.related(token)
            # an identity stored with a unique serial may be any device that has the serial now
            yield from self._alone.related(token)
            for alone in _with_serials_alone((token,)):
                yield from self._own.related(alone)


def overlapping(identities: Mapping[T, Collection[str]]) -> frozenset[T]:
    """Items that may share a device with another item: at least the pairs that Index finds."""
    tokens = {item: {*of, *_with_serials_alone(of)} for item, of in identities.items()}
    counts = Counter(chain.from_iterable(tokens.values()))
    several = {token for token, count in counts.items() if count > 1}
    found, places = set[T](), set[str]()
    nested = _nested(counts)
    for item, of in tokens.items():
        above = set[str]()
        if not nested.isdisjoint(of):
            above = counts.keys() & set().union(*map(_above, of)).difference(of)
            places |= above
        if above or not several.isdisjoint(of):
            found.add(item)
    return frozenset(found.union(item for item, of in tokens.items() if not places.isdisjoint(of)))


class _Places(Generic[T]):
    """Items by token, in a tree of places: each place is linked once to the place above it, for any number of items."""

    def __init__(self) -> None:
        self._at: dict[str, list[T]] = {}
        self._inner: dict[str, list[str]] = {}
        self._linked: set[str] = set()

    def add(self, item: T, tokens: Iterable[str]) -> None:
        for token in tokens:
            if token in self._at:
                self._at[token].append(item)
                continue
            self._at[token] = [item]
            place = token
            while place not in self._linked and (outer := _outer(place)):
                self._linked.add(place)
                self._inner.setdefault(outer, []).append(place)
                place = outer

    def related(self, token: str) -> Iterator[T]:
        if not self._at:
            return
        yield from self._at.get(token, ())
        below = self._inner.get(token, [])[::-1]
        while below:
            place = below.pop()
            yield from self._at.get(place, ())
            below += reversed(self._inner.get(place, ()))
        while token := _outer(token):
            yield from self._at.get(token, ())


def _nested(tokens: Collection[str]) -> set[str]:
    """Tokens that are places in another token. tokens: a set, or keys."""
    # places that are neither a token nor within one
    clear, nested = {""}, set[str]()
    for token in tokens:
        path, place = list[str](), _outer(token)
        while place not in clear and place not in tokens:
            path.append(place)
            place = _outer(place)
        if place in clear:
            clear.update(path)
        else:
            nested.add(token)
    return nested


def _with_serials_alone(tokens: Iterable[str]) -> list[str]:
    return [alone for token in tokens if "@" in token and (alone := with_serial_alone(token))]


def _above(token: str) -> list[str]:
    """The places above a place, the nearest first; empty for other tokens."""
    places: list[str] = []
    while token := _outer(token):
        places.append(token)
    return places


def _outer(token: str) -> str:
    """The place directly above a place; empty for the outermost one and for other tokens."""
    if token[:1] != "/":
        return ""
    end = token.rfind("/", 1)
    return token[:end] if end > 0 else ""
