"""What is wrong with the API server now: told while it lasts, and not for ever after."""

import pytest
from nodedevice_operator.errors import ApiError, Denied, Forbidden, OverBudget, Unauthorized, Unavailable
from nodedevice_operator.kube.health import ApiHealth

FORBIDDEN = Forbidden("GET", "pods", "no role", 403)
BUSY = Unavailable("POST", "events", "slow down", 429, 1.0)


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def health(clock: _Clock) -> ApiHealth:
    return ApiHealth("https://api", clock)


@pytest.mark.parametrize("refusal", [FORBIDDEN, BUSY], ids=["forbidden", "busy"])
def test_a_refusal_that_nobody_repeats_is_no_problem_for_ever(
    health: ApiHealth, clock: _Clock, refusal: ApiError
) -> None:
    health.failed(refusal)
    clock.now += 60
    (problem,) = health.problems()
    assert f"{refusal.verb} {refusal.what}" in problem
    clock.now += 60
    assert health.problems() == ()


@pytest.mark.parametrize("refusal", [FORBIDDEN, BUSY], ids=["forbidden", "busy"])
def test_one_that_is_repeated_stays_until_it_is_answered(health: ApiHealth, clock: _Clock, refusal: ApiError) -> None:
    for _ in range(10):
        health.failed(refusal)
        clock.now += 36
        assert health.problems()
    health.succeeded(refusal.verb, refusal.what)
    assert health.problems() == ()


def test_what_is_forbidden_is_logged_once_until_it_is_allowed(
    health: ApiHealth, clock: _Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        health.failed(FORBIDDEN)
        clock.now += 1000
    assert len(caplog.records) == 1
    health.succeeded("GET", "pods")
    health.failed(FORBIDDEN)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 2


def test_credentials_that_are_not_accepted_are_one_trouble_whatever_was_asked(
    health: ApiHealth, clock: _Clock, caplog: pytest.LogCaptureFixture
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
    health.failed(Unauthorized("list", "nodes", "Unauthorized", 401))
    clock.now += 100
    assert health.problems() == ()
    assert [logged.levelname for logged in caplog.records] == ["ERROR", "INFO", "ERROR"]


@pytest.mark.parametrize(
    "refusal",
    [Denied("PATCH", "nodes/status", "a policy", 403), OverBudget("POST", "pods/eviction", "not now", 429)],
    ids=["denied", "over budget"],
)
def test_what_is_about_one_object_is_no_problem_of_the_api_server(health: ApiHealth, refusal: ApiError) -> None:
    health.failed(refusal)
    assert health.problems() == ()
