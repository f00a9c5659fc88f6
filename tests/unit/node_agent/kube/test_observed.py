"""Parts as ranges of numbers, and what is read of an observed status, whatever a client has written there."""

from copy import deepcopy
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins
from nodedevice_agent.devicemanager.records.allocations import MAX_SINCE
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.kube.observed import (
    cordons_of,
    held_ids,
    is_only_shown,
    observed_spec,
    observed_status,
    resource_name_of,
    since_of,
)
from nodedevice_agent.kube.parts import MAX_NUMBERS_CHARACTERS, MAX_PARENTS, by_parent, part_ids
from nodedevice_api.names import ONLY_SHOWN, SERVED_BY_KUBELET
from nodedevice_api.nodedevice import AllocationStatus, HeldParts, NodeDeviceStatus
from nodedevice_api.parts import part_id

from tests.unit.node_agent.kube import test_wire

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
        HeldParts("a", 0, "x"),
    ],
)
def test_invalid_ranges_are_omitted_devices_one_at_least(entry: HeldParts) -> None:
    with pytest.raises(ValueError, match=r"parts|numbers|separator"):
        part_ids([entry], 131_072)
    held = AllocationStatus(pod_uid="p", container="c", device_ids=["b"], omitted=2, parts=[entry])
    assert held_ids(held) == (["b"], 2 + max(entry.parts, 1))


@pytest.mark.parametrize(
    ("since", "read"),
    [
        pytest.param("2026-01-05T12:00:00Z", 1_767_614_400, id="as the agent writes it"),
        pytest.param("2026-01-05T13:00:00+01:00", 1_767_614_400, id="another time zone"),
        pytest.param("2026-01-05T12:00:00.9Z", 1_767_614_400, id="a fraction"),
        pytest.param("9999-12-31T23:59:59Z", MAX_SINCE, id="the last one"),
        pytest.param("1970-01-01T00:00:01Z", 1, id="the first one"),
        pytest.param("", 0, id="empty"),
        pytest.param("yesterday", 0, id="no time"),
        pytest.param("2026-01-05T12:00:00", 0, id="no time zone"),
        pytest.param("1970-01-01T00:00:00Z", 0, id="the clock's zero"),
        pytest.param("0001-01-01T00:00:00Z", 0, id="Go's zero"),
        pytest.param("0001-01-01T00:00:00+23:00", 0, id="before the first year"),
        pytest.param("9999-12-31T23:59:59-23:00", 0, id="after the last year"),
    ],
)
def test_since(since: str, read: int) -> None:
    assert since_of(since) == read


STATUS: Final = test_wire.CASES["parts-of-gpus"]()
WRONG: Final[list[Any]] = [None, True, "text", -0.5, 2**70, [], ["x", None], {"id": []}, {"a": {"b": [1]}}]


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Of each value in it, and of itself."""
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in below for place in places(each, (*path, key)))]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_what_is_malformed_costs_what_it_is_in_and_nothing_else(wrong: Any) -> None:
    """At every place of a status, one after the other."""
    before = observed_status(STATUS)
    assert to_builtins(before) == STATUS
    for place in places(STATUS)[1:]:
        changed = deepcopy(STATUS)
        parent: Any = changed
        for key in place[:-1]:
            parent = parent[key]
        parent[place[-1]] = wrong
        found = observed_status(changed)
        others = set(NodeDeviceStatus.__struct_fields__) - {field_of(str(place[0]))}
        assert all(getattr(found, name) == getattr(before, name) for name in others), place


def field_of(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)


def test_a_malformed_entry_costs_no_other_one_and_a_malformed_note_not_its_entry() -> None:
    held = {"podUID": "p", "container": "c", "deviceIDs": ["a"]}
    found = observed_status({"allocations": [7, {"container": "c"}, {**held, "notInjected": 7, "since": []}, held]})
    assert [held_ids(entry) for entry in found.allocations] == [(["a"], 0)] * 2


def test_a_note_of_another_form_costs_the_note_and_not_the_cordon() -> None:
    spec = {"cordonedDevices": [{"id": "a", "reason": "fan", "by": 7, "at": {}}, {"id": 7}, {}, "b", {"id": "c"}]}
    assert cordons_of(observed_spec(spec).cordoned_devices) == {"a": Cordon("fan"), "c": Cordon()}
    assert observed_spec({"nodeName": [], "resourceName": 7, "cordonedDevices": 7}).cordoned_devices == []


@pytest.mark.parametrize(
    ("status", "is_shown_only"),
    [
        *(({"agent": {"servedBy": served_by}}, True) for served_by in sorted(ONLY_SHOWN)),
        ({"agent": {"servedBy": "Agent"}}, False),
        ({"agent": {}}, False),
        ({"agent": SERVED_BY_KUBELET}, False),
        ({}, False),
    ],
)
def test_which_status_only_shows_what_others_give_out(status: dict[str, object], is_shown_only: bool) -> None:
    assert is_only_shown(observed_status(status)) is is_shown_only


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"resourceName": "example.com/gpu"}, "example.com/gpu"),
        ({"resourceName": "gpu"}, ""),
        ({"resourceName": 7}, ""),
        ({}, ""),
    ],
)
def test_what_is_no_resource_name_is_none(spec: dict[str, object], name: str) -> None:
    assert resource_name_of(observed_spec(spec)) == name
