"""Parts as ranges of numbers: every holding comes back as it was written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.kube.observed import held_ids
from nodedevice_agent.kube.parts import MAX_NUMBERS_CHARACTERS, MAX_PARENTS, by_parent, part_ids
from nodedevice_api.nodedevice import AllocationStatus, HeldParts
from nodedevice_api.parts import part_id

PARENTS = st.sampled_from(["GPU-1", "GPU-2-a", "a-0"])
HELD = st.frozensets(st.tuples(PARENTS, st.integers(0, 200)))


@given(HELD)
def test_ranges_are_read_as_they_were_written(held: frozenset[tuple[str, int]]) -> None:
    ids = sorted(part_id(parent, number) for parent, number in held)
    entries, others, omitted = by_parent(ids)
    assert (others, omitted) == ([], 0)
    assert sorted(part_ids(entries, 1000)) == ids


def test_consecutive_numbers_are_one_range() -> None:
    ids = [part_id("GPU-1", number) for number in (0, 1, 2, 10, 11, 40)]
    entry = HeldParts("GPU-1", 6, "0-2,10-11,40", "::")
    assert by_parent([*ids, "whole"]) == ([entry], ["whole"], 0)


def test_the_form_of_earlier_releases_and_of_other_plugins_has_no_separator() -> None:
    ids = ["GPU-1-0", "GPU-1-1", "GPU-1::1", "GPU-1::2"]
    old = HeldParts("GPU-1", 2, "0-1")
    new = HeldParts("GPU-1", 2, "1-2", "::")
    assert by_parent(ids) == ([old, new], [], 0)
    assert part_ids([old, new], 4) == ids


def test_what_exceeds_the_bounds_is_counted() -> None:
    scattered = [part_id("GPU-1", 2 * number) for number in range(2000)]
    (entry,), _, omitted = by_parent(scattered)
    assert len(entry.numbers) <= MAX_NUMBERS_CHARACTERS
    assert entry.parts + omitted == 2000
    assert len(part_ids([entry], 2000)) == entry.parts
    entries, _, omitted = by_parent([part_id(f"g{index:03}", 0) for index in range(MAX_PARENTS + 3)])
    assert (len(entries), omitted) == (MAX_PARENTS, 3)


@pytest.mark.parametrize(
    "entry",
    [
        HeldParts("a", 2, "0"),
        HeldParts("a", 1, ""),
        HeldParts("a", 2, "1-0"),
        HeldParts("a", 2, "1,0"),
        HeldParts("a", 2, "0,0"),
        HeldParts("a", 1, "-1"),
        HeldParts("a", 1, "x"),
        HeldParts("a", 999_999, "0-999998"),
        HeldParts("a", 1, "9" * 5000),
        HeldParts("a", 1, "0", "~"),
    ],
)
def test_invalid_ranges_hold_the_resource_back(entry: HeldParts) -> None:
    with pytest.raises(ValueError, match=r"parts|numbers|separator"):
        part_ids([entry], 131_072)
    ids, omitted = held_ids(AllocationStatus(pod_uid="p", container="c", device_ids=["b"], parts=[entry]))
    assert ids == ["b"]
    assert omitted >= 1
