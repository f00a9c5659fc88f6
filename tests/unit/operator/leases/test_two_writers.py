"""A model of the election: whatever becomes of its messages, no two candidates may write at one moment.

Candidates decide by the functions of the program. Around them are a store that compares versions, and a network that delivers each
message at any time, twice, or not at all. All orders are explored by the number of messages, so that a failure is shown by the
shortest way to it. The clock stands at 0: times of before are negative. It jumps to whatever is due next.

Of versions and renewals only matters whether they are those that are stored: "now" is stored, "old" was. A claim that the store
refuses is the same as one whose answer is lost.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import inf
from typing import Final, NamedTuple, NewType

import pytest
from nodedevice_kube.leases import Lease
from nodedevice_operator.leases.leader_election import Candidate, Timing

SHORT, LONG = Timing(4), Timing(20)
MOST_MESSAGES: Final = 8
NOW: Final = "now"

# Candidates and Leases have numbers, which are compared fast.
C = NewType("C", int)
L = NewType("L", int)
_candidates: list[Candidate] = []
_leases: list[Lease] = []


@cache
def candidate_number(candidate: Candidate) -> C:
    _candidates.append(candidate)
    return C(len(_candidates) - 1)


@cache
def lease_number(lease: Lease) -> L:
    _leases.append(lease)
    return L(len(_leases) - 1)


NO_LEASE: Final = lease_number(Lease())


class Message(NamedTuple):
    """A request to the store, or its answer. lease: to be written, or read; None: to be read.

    sent_at: of the request, while its sender waits for the answer; None: it does not.
    """

    process: int
    is_answer: bool
    is_write: bool
    lease: L | None
    sent_at: float | None

    def left(self) -> "Message":
        """Nobody waits for its answer any more."""
        return self._replace(sent_at=None)

    def resent(self) -> "Message":
        return self._replace(sent_at=0)

    def aged(self, seconds: float) -> "Message":
        return self if self.sent_at is None else self._replace(sent_at=self.sent_at - seconds)

    def outdated(self) -> "Message":
        """After another Lease was stored."""
        return self if self.lease is None else self._replace(lease=older(self.lease))

    def answer(self, lease: L) -> "Message":
        return self._replace(is_answer=True, lease=lease)


class World(NamedTuple):
    """candidates: of each process. tries: how many requests of its present one it has sent."""

    candidates: tuple[C, ...]
    tries: tuple[int, ...]
    lease: L
    in_flight: frozenset[Message] = frozenset()

    def without(self, message: Message) -> "World":
        return self._replace(in_flight=self.in_flight - {message})

    def sending(self, *messages: Message) -> "World":
        return self._replace(in_flight=self.in_flight.union(messages))


def _plain(candidate: Candidate) -> C:
    """One that decides the same in all that follows: what is past makes no difference."""
    if candidate.wait_seconds(0) == 0:
        candidate = replace(candidate, unchanged_since=-99.0)
    if not candidate.may_write(0):
        candidate = replace(candidate, may_write_until=-inf, is_current=False)
    return candidate_number(candidate)


@cache
def older(lease: L) -> L:
    """After another was stored."""
    before = _leases[lease]
    return lease_number(before._replace(renewed="old", version="old" if before.version else ""))


@cache
def superseded(number: C) -> C:
    candidate = _candidates[number]
    if candidate.seen is None:
        return number
    return _plain(replace(candidate, seen=_leases[older(lease_number(candidate.seen))]))


@cache
def aged(number: C, seconds: float) -> C:
    candidate = _candidates[number]
    since, until = candidate.unchanged_since - seconds, candidate.may_write_until - seconds
    return _plain(replace(candidate, unchanged_since=since, may_write_until=until))


@cache
def due(number: C) -> tuple[float, ...]:
    """When it has to renew, when its fence closes, and when it may take the Lease."""
    candidate = _candidates[number]
    renewal = candidate.may_write_until - candidate.timing.deadline_seconds + candidate.timing.renew_seconds
    return tuple(moment for moment in (renewal, candidate.may_write_until, candidate.wait_seconds(0)) if moment > 0)


@cache
def may_write(number: C) -> bool:
    return _candidates[number].may_write(0)


@cache
def claims(number: C) -> list[tuple[C, L]]:
    """What it may claim now: nothing while it has to wait."""
    candidate = _candidates[number]
    if candidate.wait_seconds(0) > 0:
        return []
    claiming = [candidate.claiming(timing, 0) for timing in (SHORT, LONG)]
    return [
        (_plain(each), lease_number(each.claim("claimed")._replace(acquired="", transitions=0))) for each in claiming
    ]


@cache
def release(number: C) -> tuple[C, L] | None:
    candidate = _candidates[number]
    if not candidate.holds:
        return None
    released = candidate.release("released")._replace(acquired="", transitions=0)
    return _plain(candidate.stopped()), lease_number(released)


@cache
def saw(number: C, lease: L) -> C:
    return candidate_number(_candidates[number].saw(_leases[lease], 0))


@cache
def stopped(number: C) -> C:
    return _plain(_candidates[number].stopped())


@cache
def unsure(number: C) -> C:
    return _plain(_candidates[number].unsure())


@cache
def claimed(number: C, lease: L, sent_at: float) -> C:
    return _plain(_candidates[number].claimed(_leases[lease], sent_at, 0))


def acted(world: World, process: int, candidate: C, tries: int, *sent: Message) -> World:
    """tries: 0, it waits for no answer any more; its requests may still arrive."""
    in_flight = world.in_flight
    if not tries and world.tries[process]:
        own = {m for m in in_flight if m.process == process and m.sent_at is not None}
        in_flight = (in_flight - own) | {m.left() for m in own if m.is_write and not m.is_answer}
    candidates = (*world.candidates[:process], candidate, *world.candidates[process + 1 :])
    all_tries = (*world.tries[:process], tries, *world.tries[process + 1 :])
    return World(candidates, all_tries, world.lease, in_flight.union(sent))


def claiming(world: World, process: int, candidate: C) -> Iterator[tuple[int, World]]:
    for after, lease in claims(candidate):
        yield 1, acted(world, process, after, 1, Message(process, False, True, lease, 0))


def actions(world: World, process: int) -> Iterator[tuple[int, World]]:
    """What that candidate may do: with how many messages, and the world after it."""
    candidate, tries = world.candidates[process], world.tries[process]
    if tries:
        # it fails, for whatever reason
        yield 0, acted(world, process, unsure(candidate), 0)
        for message in world.in_flight if tries == 1 else ():
            if (
                message.process == process
                and message.is_write
                and not message.is_answer
                and message.sent_at is not None
            ):
                yield 1, acted(world, process, candidate, 2, message.resent())
        return
    if (left := release(candidate)) is not None:
        yield 1, acted(world, process, left[0], 0, Message(process, False, True, left[1], None))
    if _candidates[candidate].must_read(0):
        yield 1, acted(world, process, candidate, 1, Message(process, False, False, None, 0))
    else:
        yield from claiming(world, process, candidate)


def stored(world: World, lease: L) -> World:
    candidates = tuple(map(superseded, world.candidates))
    # what is to replace another version can change nothing any more
    in_flight = {
        m.outdated() for m in world.in_flight if m.is_answer or m.lease is None or not _leases[m.lease].version
    }
    return World(candidates, world.tries, lease, frozenset(in_flight))


def arrivals(world: World) -> Iterator[tuple[int, World]]:
    for message in world.in_flight:
        rest = world.without(message)
        if message.is_answer:
            yield from answered(rest, message)
        elif message.lease is None:
            yield 1, rest.sending(message.answer(world.lease))
        elif _leases[message.lease].version == _leases[world.lease].version:
            lease = lease_number(_leases[message.lease]._replace(renewed=NOW, version=NOW))
            answers = [message.answer(lease)] if message.sent_at is not None else []
            yield len(answers), stored(rest, lease).sending(*answers)
            # and once more, later
            yield 1 + len(answers), stored(rest.sending(message.left()), lease).sending(*answers)


def answered(world: World, answer: Message) -> Iterator[tuple[int, World]]:
    process, candidate = answer.process, world.candidates[answer.process]
    assert answer.lease is not None
    assert answer.sent_at is not None
    if answer.is_write:
        yield 0, acted(world, process, claimed(candidate, answer.lease, answer.sent_at), 0)
        return
    after = saw(candidate, answer.lease)
    if claims(after):
        yield from claiming(world, process, after)
    else:
        yield 0, acted(world, process, stopped(after), 0)


def later(world: World) -> Iterator[tuple[int, World]]:
    moments = [moment for candidate in world.candidates for moment in due(candidate)]
    for message in world.in_flight:
        if message.sent_at is not None and message.is_write and not message.is_answer:
            moments.append(message.sent_at + _candidates[world.candidates[message.process]].timing.second_try_seconds)
    if moments := [moment for moment in moments if moment > 0]:
        seconds = min(moments)
        in_flight = (message.aged(seconds) for message in world.in_flight)
        candidates = tuple(aged(candidate, seconds) for candidate in world.candidates)
        yield 0, World(candidates, world.tries, world.lease, frozenset(in_flight))


def following(world: World, is_deleted: bool) -> Iterator[tuple[int, World]]:
    for process in range(len(world.candidates)):
        yield from actions(world, process)
    yield from arrivals(world)
    yield from later(world)
    if is_deleted and world.lease != NO_LEASE:
        yield 1, stored(world, NO_LEASE)


def missing(world: World) -> int:
    """How many more messages it takes at least until both may write."""
    missing = [0 if may_write(candidate) else 4 for candidate in world.candidates]
    for process, is_answer, is_write, _, sent_at in world.in_flight:
        if sent_at is not None:
            # an answer to it; and after a read the claim and its answer
            missing[process] = min(missing[process], (0 if is_answer else 1) + (0 if is_write else 2))
    return sum(sorted(missing)[:2])


def way_to_two_writers(start: World, is_deleted: bool, most_messages: int = MOST_MESSAGES) -> list[str]:
    """One with the fewest messages; empty where so many make none. is_deleted: whether people delete the Lease."""
    came_from: dict[World, World | None] = {start: None}
    pending: list[dict[World, World]] = [{} for _ in range(most_messages + 1)]
    worlds = [start]
    for messages, reached in enumerate(pending):
        new = [world for world in reached if world not in came_from]
        came_from |= {world: reached[world] for world in new}
        worlds += new
        for world in worlds:
            if sum(map(may_write, world.candidates)) > 1:
                return _way(came_from, world)
            for more, after in following(world, is_deleted):
                if after in came_from or messages + more + missing(after) > most_messages:
                    continue
                if more:
                    pending[messages + more].setdefault(after, world)
                else:
                    came_from[after] = world
                    worlds.append(after)
        worlds = []
    return []


def _way(came_from: dict[World, World | None], last: World) -> list[str]:
    found, before = [last], came_from[last]
    while before is not None:
        found.append(before)
        before = came_from[before]
    return [_in_words(world) for world in reversed(found)]


def _in_words(world: World) -> str:
    def of(lease: L | None) -> str:
        return "" if lease is None else f"{_leases[lease].holder or 'nobody'} {_leases[lease].duration_seconds} s"

    writes = [
        f"{candidate.identity} writes until {candidate.may_write_until}"
        for candidate in (_candidates[number] for number in world.candidates)
    ]
    messages = [
        f"{'answer' if m.is_answer else 'request'} of {_candidates[world.candidates[m.process]].identity}: {of(m.lease)}"
        for m in world.in_flight
    ]
    return "; ".join([f"stored: {of(world.lease)}", *writes, *sorted(messages)])


STORED: Final = Lease("a", NOW, "", 20, 0, NOW)
A: Final = candidate_number(Candidate("a", LONG).claimed(STORED, 0, 0))
B, OTHER = (candidate_number(Candidate(name, SHORT).saw(STORED, 0)) for name in "bc")
NEW: Final = [candidate_number(Candidate(name, SHORT)) for name in "ab"]


@pytest.mark.parametrize(
    ("candidates", "lease", "is_deleted", "messages"),
    [
        pytest.param((A, B), lease_number(STORED), True, MOST_MESSAGES, id="a leader and a standby"),
        pytest.param((A, B, OTHER), lease_number(STORED), True, MOST_MESSAGES - 1, id="a leader and two"),
        # whoever has never read a Lease that was deleted knows of no holder
        pytest.param((*NEW,), NO_LEASE, False, MOST_MESSAGES, id="two new ones"),
    ],
)
def test_no_order_of_messages_makes_two_writers(
    candidates: tuple[C, ...], lease: L, is_deleted: bool, messages: int
) -> None:
    start = World(candidates, (0,) * len(candidates), lease)
    assert way_to_two_writers(start, is_deleted, messages) == []
