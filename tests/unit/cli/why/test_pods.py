"""`why pod` on clusters that are built of records: one cause, two at once, none."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubectl_nodedevice.why import pods
from kubectl_nodedevice.why.facts import Facts
from kubectl_nodedevice.why.reasons.table import PRECEDENCE

from tests.unit.cli.why import clusters
from tests.unit.cli.why.situations import ABSENT, ALONE, BOUND, UNBOUND, Change


def codes(facts: Facts) -> list[str]:
    # of two resources or claims for the same reason, each has one
    return list(dict.fromkeys(each.code for each in pods.explain(facts).findings))


def in_order(*changes: Change) -> list[str]:
    return sorted({each.code for each in changes}, key=lambda code: PRECEDENCE[code])


@pytest.mark.parametrize("change", [*UNBOUND, *ALONE, *ABSENT], ids=lambda change: change.id)
def test_what_keeps_a_pod_from_a_node(change: Change) -> None:
    assert codes(change.do(clusters.base())) == [change.code]


@pytest.mark.parametrize("change", BOUND, ids=lambda change: change.id)
def test_what_keeps_a_pod_from_running_on_its_node(change: Change) -> None:
    assert codes(change.do(clusters.bound())) == [change.code]


@pytest.mark.parametrize("made", [clusters.base, clusters.bound])
def test_where_nothing_is_wrong_nothing_is_named(made: object) -> None:
    assert callable(made)
    explained = pods.explain(made())
    assert explained.findings == ()
    assert explained.is_stopped


def test_then_the_scheduler_has_the_word() -> None:
    assert pods.explain(clusters.base()).words == "0/3 nodes are available"


def _go_together(changes: list[Change]) -> bool:
    return all(one.goes_with(other) for one, other in combinations(changes, 2))


def _several(changes: tuple[Change, ...]) -> st.SearchStrategy[list[Change]]:
    drawn = st.lists(st.sampled_from(changes), min_size=2, max_size=3, unique_by=lambda change: change.id)
    return drawn.filter(_go_together)


_MADE = ((clusters.base, UNBOUND), (clusters.bound, BOUND))
_PAIRS = st.one_of(*(st.tuples(st.just(made), _several(changes)) for made, changes in _MADE))


@given(_PAIRS)
def test_all_that_was_done_is_named_and_nothing_else(drawn: tuple[object, list[Change]]) -> None:
    made, changes = drawn
    assert callable(made)
    facts = made()
    for change in changes:
        facts = change.do(facts)
    assert codes(facts) == in_order(*changes)
