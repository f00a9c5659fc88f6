"""The table of what each source can tell of a device: each pair of sources that can be compared is, and no other."""

from itertools import combinations, product
from typing import Final

import pytest
from nodedevice_agent.identity import Kind
from nodedevice_agent.offered_twice.compare import Offer
from nodedevice_agent.offered_twice.sources import TABLE, Row, Source

from tests.unit.node_agent.offered_twice.offered import SHOWN, offer, pairs

PAIRS: Final = [(a, b) for a, b in combinations(TABLE, 2) if a.kind is b.kind and a.source is not b.source]
# in no row: of these two sources nothing says by this kind that a device is one
NOT_KNOWABLE: Final = {(source, Kind.SERIAL) for source in (Source.KUBELET, Source.PLUGIN)}


def _id(row: Row) -> str:
    return f"{row.source.name}-{row.kind}-{'all' if row.is_of_all else 'held'}"


def _offer(row: Row) -> Offer:
    raw = SHOWN[row.source, row.kind, row.is_of_all]
    return (
        offer(row.source, [raw]) if row.is_of_all else offer(row.source, files=[((raw.id,), raw.nodes)], held=[raw.id])
    )


def test_each_row_has_a_device_here() -> None:
    assert SHOWN.keys() == {(row.source, row.kind, row.is_of_all) for row in TABLE}


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=_id)
def test_each_pair_that_can_exist_is_found(one: Row, other: Row) -> None:
    assert len(pairs(_offer(one), _offer(other))) == 1


def test_what_has_no_row_is_not_knowable() -> None:
    rows = {(row.source, row.kind) for row in TABLE}
    assert {*product(Source, {kind for _, kind in rows})} - rows == NOT_KNOWABLE


@pytest.mark.parametrize(
    ("one", "other"),
    [(a, b) for a, b in combinations(TABLE, 2) if a.kind is not b.kind and a.source is not b.source],
    ids=_id,
)
def test_two_kinds_say_nothing_of_each_other(one: Row, other: Row) -> None:
    assert not pairs(_offer(one), _offer(other))
