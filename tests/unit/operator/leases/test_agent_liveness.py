"""How old an agent's Lease is, by our own clock and by what we could see; whose free devices are withdrawn; what is stored."""

import pytest
from nodedevice_api.names import Condition as Kind
from nodedevice_api.names import Reason
from nodedevice_operator.leases.agent_liveness import (
    ALIVE,
    MISSING,
    AgentState,
    LeaseTable,
    StoredAgent,
    silent_together,
    stored_agents,
    stored_state,
)
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.objects.unwatched import LeaseRecord

from tests.fakes.operator.operator_model import GPU, NIC, node_device

NODES = frozenset({"node-a"})
TEN = tuple(f"node-{number}" for number in range(10))


def renewed(when: str, seconds: int = 60) -> dict[str, LeaseRecord]:
    return {"node-a": LeaseRecord(when, seconds)}


def polls(*seen: tuple[float, str], book: LeaseTable | None = None) -> LeaseTable:
    """A book after polls at these times, each finding that renewal."""
    book = book or LeaseTable()
    for now, when in seen:
        book = book.updated(renewed(when), now, NODES)
    return book


def every_ten_seconds(
    book: LeaseTable, until: float, found: dict[str, LeaseRecord], nodes: frozenset[str] = NODES
) -> LeaseTable:
    """A book after polls that all found the same."""
    while book.listed_at is not None and book.listed_at < until:
        book = book.updated(found, book.listed_at + 10, nodes)
    return book


def silent(book: LeaseTable, until: float) -> LeaseTable:
    return every_ten_seconds(book, until, renewed("then"))


def test_it_expires_when_it_was_not_renewed_for_longer_than_it_lasts() -> None:
    book = silent(polls((0, "then")), 60)
    assert book.state("node-a") is ALIVE
    book = silent(book, 70)
    assert (book.state("node-a").status, book.state("node-a").reason) == ("Unknown", Reason.LEASE_EXPIRED)
    assert polls((80, "now"), book=book).state("node-a") is ALIVE


def test_time_without_polls_does_not_count() -> None:
    assert polls((0, "then"), (10, "then"), (300, "then")).state("node-a") is ALIVE
    book = silent(polls((0, "then"), (300, "then")), 370)
    assert book.state("node-a").reason == Reason.LEASE_EXPIRED


class TestGone:
    """A Lease that was there and is not: deleted, or not yet known to the API server that was asked."""

    def test_not_to_find_it_once_changes_nothing(self) -> None:
        before = polls((0, "then"))
        book = before.updated({}, 10, NODES)
        assert book.changes_since(before) == frozenset()
        book = polls((20, "then"), book=book)
        assert book.changes_since(before) == frozenset()
        state = silent(book, 70).state("node-a")
        assert (state.reason, "gone" in state.message) == (Reason.LEASE_EXPIRED, False)

    def test_one_that_went_before_our_first_poll_has_as_long(self) -> None:
        book = LeaseTable().updated({}, 1000, NODES, {"node-a": StoredAgent(is_alive=True)})
        book = every_ten_seconds(book, 1060, {})
        assert book.state("node-a") is ALIVE
        assert every_ten_seconds(book, 1070, {}).state("node-a").reason == Reason.LEASE_EXPIRED
        assert polls((1070, "now"), book=book).state("node-a") is ALIVE

    def test_what_was_silent_before_our_first_poll_stays_so(self) -> None:
        book = LeaseTable().updated({}, 1000, NODES, {"node-a": StoredAgent(is_alive=False)})
        assert book.state("node-a").reason == Reason.LEASE_EXPIRED
        assert not every_ten_seconds(book, 1290, {}).state("node-a").is_withdrawn
        assert every_ten_seconds(book, 1300, {}).state("node-a").is_withdrawn


def test_changes_are_of_states_only() -> None:
    before = polls((0, "a"))
    assert before.updated(renewed("b"), 10, NODES).changes_since(before) == frozenset()
    assert before.updated(renewed("a", 5), 10, NODES).changes_since(before) == {"node-a"}
    assert before.changes_since(LeaseTable()) == {"node-a"}


class TestGrace:
    """When a silent agent's free devices are withdrawn."""

    @pytest.mark.parametrize("found", [renewed("then"), {}], ids=["not renewed", "gone"])
    def test_it_begins_when_the_lease_has_run_out_and_ends_with_a_renewal(self, found: dict[str, LeaseRecord]) -> None:
        before = every_ten_seconds(polls((0, "then")), 360, found)
        assert not before.state("node-a").is_withdrawn
        book = every_ten_seconds(before, 370, found)
        assert (book.state("node-a").is_withdrawn, book.changes_since(before)) == (True, NODES)
        # the same Lease again is no renewal
        assert polls((380, "then"), book=book).state("node-a").is_withdrawn
        assert polls((380, "now"), book=book).state("node-a") is ALIVE

    def test_it_may_be_none(self) -> None:
        assert silent(polls((0, "then"), book=LeaseTable(0)), 70).state("node-a").is_withdrawn

    def test_time_without_polls_does_not_count(self) -> None:
        book = silent(polls((0, "then")), 70)
        # the API server was away for an hour
        book = silent(polls((3670, "then"), book=book), 3960)
        assert not book.state("node-a").is_withdrawn
        assert silent(book, 3970).state("node-a").is_withdrawn

    def test_a_lease_that_never_was_cannot_run_out(self) -> None:
        assert every_ten_seconds(LeaseTable().updated({}, 0, NODES), 1000, {}).state("node-a") is MISSING


class TestTogether:
    """Many that fall silent at about the same time."""

    FOUND = dict.fromkeys(TEN, LeaseRecord("then", 60))

    def cut_off(self, count: int, until: int, book: LeaseTable | None = None, since: int = 0) -> LeaseTable:
        """The fleet after so many of it renewed no more."""
        book = book or LeaseTable().updated(self.FOUND, 0, frozenset(TEN))
        for now in range(since + 10, until + 10, 10):
            alive = dict.fromkeys(TEN[count:], LeaseRecord(f"at {now}", 60))
            book = book.updated({**self.FOUND, **alive}, now, frozenset(TEN))
        return book

    def test_the_grace_of_those_who_stay_silent_begins_when_it_is_over(self) -> None:
        book = self.cut_off(2, 1290, self.cut_off(3, 1000), 1000)
        assert book.state("node-2") is ALIVE
        assert (book.state("node-0").reason, book.state("node-0").is_withdrawn) == (Reason.LEASE_EXPIRED, False)
        assert self.cut_off(2, 1300, book, 1290).state("node-0").is_withdrawn

    def test_it_is_over_for_those_who_stay_silent_for_ten_graces_while_most_renew(self) -> None:
        book = self.cut_off(3, 3060)
        assert book.outage == set(TEN[:3])
        book = self.cut_off(3, 3350, book, 3060)
        assert (book.outage, book.state("node-0").is_withdrawn) == (frozenset(), False)
        assert self.cut_off(3, 3360, book, 3350).state("node-0").is_withdrawn
        assert self.cut_off(5, 4000).outage == set(TEN[:5])

    def test_a_restart_makes_no_outage_of_what_was_withdrawn_before(self) -> None:
        withdrawn = dict.fromkeys(TEN[:5], StoredAgent(is_alive=False, is_withdrawn=True))
        book = LeaseTable().updated(self.FOUND, 0, frozenset(TEN), withdrawn)
        assert not book.outage
        assert all(book.state(name).is_withdrawn for name in TEN[:5])
        assert book.state(TEN[5]) is ALIVE

    def test_a_restart_amid_an_outage_goes_on_with_it(self) -> None:
        silent_before = dict.fromkeys(TEN, StoredAgent(is_alive=False))
        book = LeaseTable().updated(self.FOUND, 0, frozenset(TEN), silent_before)
        book = every_ten_seconds(book, 1000, self.FOUND, frozenset(TEN))
        assert book.outage == set(TEN)
        assert not any(book.state(name).is_withdrawn for name in TEN)


@pytest.mark.parametrize(
    ("agents", "silent", "is_outage"),
    [(1, 1, False), (2, 2, True), (5, 2, True), (10, 2, False), (5000, 1000, False), (5000, 1001, True)],
)
def test_more_than_a_fifth_and_more_than_one(agents: int, silent: int, is_outage: bool) -> None:
    names = {f"node-{number}": 0.0 for number in range(silent)}
    assert silent_together(names, agents) == (names.keys() if is_outage else set())


def test_only_those_within_a_minute_of_each_other() -> None:
    one_by_one = {f"node-{number}": number * 61.0 for number in range(10)}
    assert silent_together(one_by_one, 10) == set()
    crowd = {"a": 1000.0, "b": 1030.0, "c": 1060.0}
    assert silent_together({**one_by_one, **crowd}, 13) >= crowd.keys()
    assert "node-0" not in silent_together({**one_by_one, **crowd}, 13)


STORED_ALIVE = ("True", Reason.LEASE_RENEWED)
EXPIRED = ("Unknown", Reason.LEASE_EXPIRED)
TOGETHER = ("Unknown", Reason.LEASES_EXPIRED_TOGETHER)
STORED_MISSING = ("Unknown", Reason.LEASE_MISSING)


def reports(
    agent: tuple[str, str] | None, resource: str = GPU, node: str = "node-a", *, withdrawn: bool = False
) -> NodeDeviceRecord:
    """A NodeDevice on which that is stored of its agent."""
    conditions = {}
    if agent is not None:
        conditions[Kind.AGENT_READY] = StoredCondition(*agent, "words", "then", 1)
    if withdrawn:
        conditions[Kind.ADVERTISED] = StoredCondition("True", Reason.FREE_WITHDRAWN, "", "then", 1)
    return node_device(resource, node=node, conditions=conditions)


def test_silence_comes_before_life() -> None:
    both = [reports(STORED_ALIVE), reports(EXPIRED, NIC)]
    assert stored_state(both) == stored_state(both[::-1]) == AgentState(*EXPIRED, "words")
    assert stored_agents(both) == stored_agents(both[::-1]) == {"node-a": StoredAgent(is_alive=False)}


def test_of_each_node_whether_it_lived_and_whether_it_was_withdrawn() -> None:
    records = [
        reports(STORED_ALIVE, node="node-a"),
        reports(TOGETHER, node="node-b"),
        reports(EXPIRED, node="node-c", withdrawn=True),
        reports(EXPIRED, NIC, node="node-c"),
        reports(None, node="node-d"),
        # it never had a Lease
        reports(STORED_MISSING, node="node-e"),
    ]
    assert stored_agents(records) == {
        "node-a": StoredAgent(is_alive=True),
        "node-b": StoredAgent(is_alive=False),
        "node-c": StoredAgent(is_alive=False, is_withdrawn=True),
    }
