"""Which writes of a status go first, and which are spread out."""

from typing import Any

import pytest
from nodedevice_agent.kube.status import is_bulk, is_loss

Json = dict[str, Any]

NUMBERS = {"allocated": 2, "reserved": 1, "available": 5}
NOT_INJECTABLE = {"conditions": [{"type": "Injectable", "status": "False"}]}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({}, NUMBERS, True, id="the first"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Running"}}, False, id="of a plugin that serves"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Stopped"}}, True, id="of one that has stopped"),
        pytest.param(NUMBERS, NUMBERS | {"endpoint": {"state": "Gone"}}, True, id="of one that is gone"),
    ],
)
def test_writes_that_hundreds_of_plugins_may_need_at_once(before: Json, after: Json, expected: bool) -> None:
    assert is_bulk(before, after) is expected


@pytest.mark.parametrize(
    ("before", "after", "is_fewer"),
    [
        pytest.param({}, NUMBERS, False, id="new"),
        pytest.param(NUMBERS, {**NUMBERS, "available": 4}, True, id="one is broken"),
        pytest.param(NUMBERS, {**NUMBERS, "available": 6}, False, id="one is well again"),
        pytest.param(NUMBERS, {**NUMBERS, "allocated": 4, "available": 3}, False, id="allocated"),
        pytest.param(NUMBERS, NUMBERS | NOT_INJECTABLE, True, id="not injectable any more"),
        pytest.param(NUMBERS | NOT_INJECTABLE, NUMBERS, False, id="injectable again"),
        pytest.param({**NUMBERS, "available": "five"}, NUMBERS, False, id="malformed before"),
    ],
)
def test_a_write_is_a_loss_when_pods_could_use_fewer_devices(before: Json, after: Json, is_fewer: bool) -> None:
    assert is_loss(before, after) is is_fewer
