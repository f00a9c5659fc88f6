"""What the API server refuses: which error each answer becomes, and what is reported of it."""

from typing import Any

import pytest
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    Denied,
    FieldConflict,
    Forbidden,
    Invalid,
    NotFound,
    OverBudget,
    Unauthorized,
    Unavailable,
)
from nodedevice_operator.kube.client import APPLY, Client, field_conflicts, retry_after_seconds
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.objects.meta import Cause, Details, Status

from tests.unit.operator.kube.api_server import Server


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Invalid),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (413, Invalid),
        (422, Invalid),
        (429, Unavailable),
        (500, Unavailable),
        (503, Unavailable),
    ],
)
@pytest.mark.parametrize(
    "content",
    [{"message": "so it is", "details": None}, {"message": "so it is"}, b"<html>", b'{"message":"\xff"}', b""],
)
async def test_every_refusal_is_an_error_of_ours(
    server: Server, client: Client, status: int, kind: type[ApiError], content: Any
) -> None:
    server.answers = [(status, content)]
    with pytest.raises(ApiError) as refused:
        await client.request("GET", "nodes", "/api/v1/nodes/a")
    assert type(refused.value) is kind
    assert refused.value.status == status
    assert refused.value.what == "nodes"


async def test_causes_and_retry_after_come_along(server: Server, client: Client) -> None:
    cause = {"reason": "FieldManagerConflict", "message": 'conflict with "kubelet" using v1', "field": ".status.x"}
    server.answers = [
        (409, {"details": {"causes": [cause]}}),
        (429, {"details": {"retryAfterSeconds": 3}}),
        (403, {"details": {"causes": [{"reason": "NamespaceTerminating"}]}}),
    ]
    with pytest.raises(Conflict) as conflict:
        await client.request("PATCH", "nodes/status", "/x", body={}, content_type=APPLY)
    assert conflict.value.causes == (FieldConflict("kubelet", ".status.x"),)
    with pytest.raises(Unavailable) as later:
        await client.request("GET", "nodes", "/x")
    assert later.value.retry_after_seconds == 3
    with pytest.raises(NotFound):
        await client.request("PATCH", "poddevices", "/x", body={}, content_type=APPLY)


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


@pytest.mark.parametrize(
    ("header", "stated", "seconds"),
    [
        (None, None, None),
        ("1", None, 1),
        ("1", 3, 3),
        ("Sat, 21 Nov 2026 12:00:00 GMT", None, None),
        ("-1", None, None),
        ("9" * 400, None, 60),
        (None, 86400, 60),
    ],
)
def test_when_to_come_back(header: str | None, stated: float | None, seconds: float | None) -> None:
    assert retry_after_seconds(header, stated) == seconds


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


_WEBHOOK = {"message": 'admission webhook "x.example" denied the request: no', "reason": "no", "code": 403}
_ROLE = {"message": 'nodes "a" is forbidden: User "u" cannot patch', "details": {"name": "a", "kind": "nodes"}}


@pytest.mark.parametrize(
    ("verb", "body", "kind"),
    [
        pytest.param("PATCH", _WEBHOOK, Denied, id="a webhook"),
        pytest.param("POST", {**_WEBHOOK, "details": {}}, Denied, id="a webhook, with empty details"),
        pytest.param("PATCH", {**_ROLE, "details": {"causes": [{"message": "no"}]}}, Denied, id="a policy"),
        pytest.param("PATCH", _ROLE, Forbidden, id="a role"),
        # no admission is asked for a read
        pytest.param("GET", {"message": "cannot get path"}, Forbidden, id="a role for a path"),
        pytest.param("PATCH", {}, Forbidden, id="a proxy"),
        pytest.param("PATCH", b"<html>403</html>", Forbidden, id="a proxy's page"),
    ],
)
async def test_whose_refusal_it_is(
    server: Server, client: Client, health: ApiHealth, verb: str, body: Any, kind: type[ApiError]
) -> None:
    server.answers = [(403, body)]
    with pytest.raises(Forbidden) as refused:
        await client.request(verb, "nodes", "/x")
    assert type(refused.value) is kind
    assert bool(health.problems()) == (kind is Forbidden)


@pytest.mark.parametrize("status", [409, 422, 429, 403, 401, 404, 500, 400])
async def test_an_error_names_the_request_and_what_the_api_server_says(
    status: int, server: Server, client: Client
) -> None:
    server.answers = [(status, {"message": "because"}), (status, b"no JSON")]
    for problem in ("because", f"HTTP {status}"):
        with pytest.raises(ApiError) as found:
            await client.request("PATCH", "nodes/status", "/x", body={})
        assert (found.value.verb, found.value.what, found.value.problem) == ("PATCH", "nodes/status", problem)
        assert found.value.status == status


def test_causes_of_a_refused_apply() -> None:
    status = Status(
        details=Details(
            causes=[
                Cause(
                    "FieldManagerConflict",
                    'conflict with "kubelet" with subresource "status" using v1',
                    ".status.capacity.example.com/gpu",
                ),
                Cause("FieldManagerConflict", 'conflict with "a \\"b\\""', ".status.x"),
                Cause("FieldValueInvalid", "no", ".spec"),
            ]
        )
    )
    assert field_conflicts(status) == (
        FieldConflict("kubelet", ".status.capacity.example.com/gpu"),
        FieldConflict('a \\"b\\"', ".status.x"),
    )
