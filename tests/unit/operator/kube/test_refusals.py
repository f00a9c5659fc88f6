"""What the API server refuses, and what is reported of it."""

import pytest
from nodedevice_kube.api_errors import (
    Denied,
    Forbidden,
    OverBudget,
    Unavailable,
)
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth

from tests.unit.operator.kube.api_server import Server


async def test_a_missing_right_is_reported_until_it_is_there(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {}), (200, {}), (200, {})]
    with pytest.raises(Forbidden):
        await client.request("PATCH", "nodes/status", "/x", body={})
    await client.request("GET", "nodes", "/x")
    assert health.problems() == ("API server forbids PATCH nodes/status",)
    await client.request("PATCH", "nodes/status", "/x", body={})
    assert health.problems() == ()


async def test_a_disruption_budget_is_no_outage(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(429, {"message": "not now", "details": {"causes": [{"reason": "DisruptionBudget"}]}})]
    with pytest.raises(OverBudget, match="not now"):
        await client.request("POST", "pods/eviction", "/x", body={})
    assert health.problems() == ()


async def test_a_busy_api_server_is_logged_now_and_then_and_is_no_outage(
    server: Server, client: Client, health: ApiHealth, caplog: pytest.LogCaptureFixture
) -> None:
    back: list[str] = []
    health.on_recovery = lambda: back.append("back")
    for _ in range(3):
        server.answers = [(429, b"Too many requests, please try again later."), (200, {})]
        with pytest.raises(Unavailable):
            await client.request("PATCH", "nodes/status", "/x", body={})
        assert health.problems() == ("API server is too busy for PATCH nodes/status",)
        await client.request("PATCH", "nodes/status", "/x", body={})
        assert health.problems() == ()
    assert [record.message for record in caplog.records] == [
        "API server is too busy; retrying after the delay it asks for"
    ]
    assert back == [], "nobody is asked to try again sooner than the API server wants"
    assert health.seconds_since_outage() == 0


async def test_a_policy_that_refuses_one_is_no_missing_right(server: Server, client: Client, health: ApiHealth) -> None:
    server.answers = [(403, {"message": "denied request: no", "details": {"causes": [{"message": "no"}]}})]
    with pytest.raises(Denied, match="denied request: no"):
        await client.request("PATCH", "nodes/status", "/x", body={})
    assert health.problems() == ()
