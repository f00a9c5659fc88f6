"""What is read of an observed status, whatever a client has written there."""

import pytest
from nodedevice_agent.devicemanager.allocation.allocations import MAX_SINCE
from nodedevice_agent.kube.observed import since_of


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
