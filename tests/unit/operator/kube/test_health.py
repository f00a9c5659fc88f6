"""What is wrong with the API server is reported while it lasts; and the pages that kubelet and Prometheus request."""

import math
import socket
import urllib.error
import urllib.request
from collections.abc import Callable

import pytest
from nodedevice_common import http_server
from nodedevice_kube.api_errors import (
    ApiError,
    Denied,
    Forbidden,
    NoAnswer,
    OverBudget,
    Unauthorized,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.log_lines import log_lines
from tests.fakes.operator.collaborators import Clock

FORBIDDEN = Forbidden("GET", "pods", "no role", 403)
BUSY = Unavailable("POST", "events", "slow down", 429, retry_after_seconds=1.0)


@pytest.fixture
def health(clock: Clock) -> ApiHealth:
    return ApiHealth("https://api", clock)


@pytest.mark.parametrize("refusal", [FORBIDDEN, BUSY], ids=["forbidden", "busy"])
def test_a_refusal_that_is_repeated_is_logged_seldom_and_is_a_problem_until_it_is_answered(
    health: ApiHealth, clock: Clock, refusal: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    back: list[float] = []
    health.on_recovery = lambda: back.append(clock.now)
    for _ in range(10):
        health.failed(refusal)
        clock.now += 5
        assert health.problems()
    assert len(caplog.records) == 1
    health.succeeded(refusal.verb, refusal.what)
    assert health.problems() == ()
    assert back == [], "it is no outage"
    # but a write may be lost to a busy API server
    assert health.seconds_since_outage() == (5 if refusal is BUSY else math.inf)


REJECTED = Unauthorized("GET", "pods", "Unauthorized", 401)


@pytest.mark.parametrize("refusal", [FORBIDDEN, REJECTED], ids=["forbidden", "rejected"])
def test_a_refusal_counts_for_a_minute_and_a_half(health: ApiHealth, clock: Clock, refusal: ApiError) -> None:
    health.failed(refusal)
    clock.now += 90
    assert len(health.problems()) == 1
    clock.now += 0.1
    assert health.problems() == ()


def test_whoever_waits_for_it_is_called_when_it_is_back(
    health: ApiHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    back: list[float] = []
    health.on_recovery = lambda: back.append(clock.now)
    answers: list[Callable[[], None]] = [lambda: health.succeeded("GET", "nodes"), lambda: health.failed(FORBIDDEN)]
    for answer in answers:
        health.failed(Unreachable("GET", "nodes", "connection refused"))
        answer()
        answer()
        clock.now += 1
    assert back == [1000, 1001]
    away = {"server": "https://api", "error": "connection refused"}
    assert log_lines(caplog.records)[:2] == [
        ("ERROR", "API server is unreachable; retrying", away),
        ("INFO", "API server is reachable again", {"server": "https://api"}),
    ]


class TestASlowServer:
    """One request without an answer, while others are answered, is no outage."""

    SLOW = NoAnswer("PUT", "leases", "no response within 3.0 s", 3.0)

    def test_is_reported_as_slow_and_seldom(
        self, health: ApiHealth, clock: Clock, caplog: pytest.LogCaptureFixture
    ) -> None:
        for _ in range(20):
            health.succeeded("GET", "nodes")
            clock.now += 2.9
            health.failed(self.SLOW)
            assert health.problems() == ()
            # it may have had its effect: a watch is not judged now
            assert health.seconds_since_outage() == 0
        fields = {"verb": "PUT", "what": "leases", "error": "no response within 3.0 s"}
        assert log_lines(caplog.records) == [("WARNING", "API server responds slowly; retrying", fields)]
        clock.now = Clock.now + 2.9 + 60
        health.succeeded("GET", "nodes")
        health.failed(self.SLOW)
        assert len(caplog.records) == 2

    @pytest.mark.parametrize("before", [None, 3.0])
    def test_that_has_answered_nothing_meanwhile_is_unreachable(
        self, health: ApiHealth, clock: Clock, caplog: pytest.LogCaptureFixture, before: float | None
    ) -> None:
        if before is not None:
            health.succeeded("GET", "nodes")
            clock.now += before
        health.failed(self.SLOW)
        assert health.problems() == ("API server https://api is unreachable: no response within 3.0 s",)
        assert [record.levelname for record in caplog.records] == ["ERROR"]
        health.succeeded("GET", "nodes")
        assert health.problems() == ()


def test_credentials_that_are_not_accepted_are_one_trouble_whatever_was_asked(
    health: ApiHealth, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for what in ("nodes", "nodedevices", "leases"):
        health.failed(Unauthorized("list", what, "Unauthorized", 401))
        clock.now += 60
    (record,) = caplog.records
    assert record.message == "API server rejects the credentials; renew the token or the client certificate"
    assert vars(record)["server"] == "https://api"
    assert health.problems() == ("API server https://api rejects the credentials",)
    health.succeeded("list", "pods")
    assert health.problems() == ()
    assert [logged.levelname for logged in caplog.records] == ["ERROR", "INFO"]


@pytest.mark.parametrize(
    "refusal",
    [Denied("PATCH", "nodes/status", "a policy", 403), OverBudget("POST", "pods/eviction", "not now", 429)],
    ids=["denied", "over budget"],
)
def test_what_is_about_one_object_is_no_problem_of_the_api_server(health: ApiHealth, refusal: ApiError) -> None:
    health.failed(refusal)
    assert health.problems() == ()


LOOPBACK = ("127.0.0.1", 0)


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_pages_show_what_is_wrong_and_only_a_hang_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiHealth("https://api")
    missing: list[str] = ["the list of Nodes is not complete"]
    health = Health(api, lambda: tuple(missing))
    address = health.serve(LOOPBACK, Metrics().registry)
    assert get(address, "/healthz") == (200, "ok\n")
    assert get(address, "/readyz") == (503, "not ok\nthe list of Nodes is not complete\n")
    missing.clear()
    assert get(address, "/readyz?verbose") == (200, "ok\n")
    api.failed(Unreachable("get", "nodes", "refused"))
    assert get(address, "/healthz") == (200, "ok\nAPI server https://api is unreachable: refused\n")
    assert get(address, "/readyz")[0] == 503
    monkeypatch.setattr(http_server, "HANG_SECONDS", -1.0)
    assert get(address, "/healthz")[0] == 503
    assert get(address, "/nothing")[0] == 404


def test_an_address_that_is_taken_is_an_error_of_ours() -> None:
    with socket.create_server(LOOPBACK) as taken, pytest.raises(OperatorSettingsError, match="cannot be used"):
        Health(ApiHealth(""), tuple).serve(taken.getsockname(), Metrics().registry)
