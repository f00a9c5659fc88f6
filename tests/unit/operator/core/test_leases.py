"""How old an agent's Lease is, by our own clock and by what we could see."""

from nodedevice_api.names import Reason
from nodedevice_operator.core.leases import ALIVE, MISSING, LeaseBook
from nodedevice_operator.core.records import LeaseRecord


def renewed(when: str, seconds: int = 60) -> dict[str, LeaseRecord]:
    return {"node-a": LeaseRecord(when, seconds)}


def looks(*seen: tuple[float, str]) -> LeaseBook:
    """A book after looks at these times, each finding that renewal."""
    book = LeaseBook()
    for now, when in seen:
        book = book.look(renewed(when), now)
    return book


def test_before_the_first_look_and_without_a_lease_it_is_missing() -> None:
    assert LeaseBook().state("node-a") is MISSING
    assert LeaseBook().look({}, 0).state("node-a") is MISSING


def test_the_first_look_counts_from_itself_however_old_the_renewal_looks() -> None:
    assert looks((1000, "long ago")).state("node-a") is ALIVE


def test_it_expires_when_it_was_not_renewed_for_longer_than_it_lasts() -> None:
    every = [(float(second), "then") for second in range(0, 61, 10)]
    assert looks(*every).state("node-a") is ALIVE
    state = looks(*every, (70, "then")).state("node-a")
    assert (state.status, state.reason) == ("Unknown", Reason.LEASE_EXPIRED)
    assert looks(*every, (70, "then"), (80, "now")).state("node-a") is ALIVE


def test_its_own_duration_counts() -> None:
    book = LeaseBook().look(renewed("then", 15), 0).look(renewed("then", 15), 20)
    assert book.state("node-a").reason == Reason.LEASE_EXPIRED


def test_time_in_which_nobody_could_look_does_not_count() -> None:
    assert looks((0, "then"), (10, "then"), (300, "then")).state("node-a") is ALIVE
    assert looks((0, "then"), (300, "then"), *((300.0 + s, "then") for s in range(10, 71, 10))).state("node-a") != ALIVE


def test_changes_are_of_states_only() -> None:
    before = looks((0, "a"))
    assert before.look(renewed("b"), 10).changes_since(before) == frozenset()
    assert before.look({}, 10).changes_since(before) == {"node-a"}
    assert before.changes_since(LeaseBook()) == {"node-a"}
