"""What is read of an observed status, whatever a client has written there."""

import pytest
from nodedevice_agent.devicemanager.allocation.allocations import MAX_SINCE
from nodedevice_agent.kube.observed import (
    held_ids,
    is_of_kubelet,
    resource_name_of,
    since_of,
    well_formed,
)
from nodedevice_api.names import SERVED_BY_KUBELET


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        pytest.param({"since": "2026-01-05T12:00:00Z"}, 1_767_614_400, id="as the agent writes it"),
        pytest.param({"since": "2026-01-05T13:00:00+01:00"}, 1_767_614_400, id="another time zone"),
        pytest.param({"since": "2026-01-05T12:00:00.9Z"}, 1_767_614_400, id="a fraction"),
        pytest.param({"since": "9999-12-31T23:59:59Z"}, MAX_SINCE, id="the last one"),
        pytest.param({"since": "1970-01-01T00:00:01Z"}, 1, id="the first one"),
        pytest.param({}, 0, id="none"),
        pytest.param({"since": ""}, 0, id="empty"),
        pytest.param({"since": "yesterday"}, 0, id="no time"),
        pytest.param({"since": "2026-01-05T12:00:00"}, 0, id="no time zone"),
        pytest.param({"since": "1970-01-01T00:00:00Z"}, 0, id="the clock's zero"),
        pytest.param({"since": "0001-01-01T00:00:00Z"}, 0, id="Go's zero"),
        pytest.param({"since": "0001-01-01T00:00:00+23:00"}, 0, id="before the first year"),
        pytest.param({"since": "9999-12-31T23:59:59-23:00"}, 0, id="after the last year"),
    ],
)
def test_since(entry: dict[str, str], read: int) -> None:
    assert since_of(entry) == read


@pytest.mark.parametrize("key", ["endpoint", "allocationsOmitted", "parts"])
def test_a_part_of_another_form_is_left_out(key: str) -> None:
    assert well_formed({key: "odd", "total": 1}) == {"total": 1}


@pytest.mark.parametrize(
    ("status", "is_shown_only"),
    [
        ({"agent": {"servedBy": SERVED_BY_KUBELET}}, True),
        ({"agent": {"servedBy": "Agent"}}, False),
        ({"agent": {}}, False),
        ({"agent": SERVED_BY_KUBELET}, False),
        ({}, False),
    ],
)
def test_which_status_only_shows_what_the_kubelet_serves(status: dict[str, object], is_shown_only: bool) -> None:
    assert is_of_kubelet(status) is is_shown_only


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
    assert resource_name_of(spec) == name


def test_parts_that_cannot_be_read_are_omitted_devices_one_at_least() -> None:
    def allocation(parts: int) -> dict[str, object]:
        return {"deviceIDs": ["a"], "deviceIDsOmitted": 2, "parts": [{"parent": "p", "parts": parts, "numbers": "x"}]}

    assert [held_ids(allocation(parts)) for parts in (0, 1, 5)] == [(["a"], 3), (["a"], 3), (["a"], 7)]
