"""Verdicts on bearer tokens: what the API server is asked, what is kept, and what a flood costs."""

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from threading import Event, Thread
from typing import Any

import pytest
from nodedevice_common import metrics_authorization as access_module
from nodedevice_common.metrics_authorization import _MOST_VERDICTS, _REVIEWS_AT_ONCE, VERDICT_SECONDS, MetricsAccess

GOOD, OTHER = "Bearer good", "Bearer of-another"
OK, UNKNOWN, FORBIDDEN = HTTPStatus.OK, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN


class Reviews:
    """Knows the tokens good and of-another; the account of the first may read metrics."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.error: Exception | None = None

    async def create(self, group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((group, kind, spec))
        if self.error is not None:
            raise self.error
        if kind == "TokenReview":
            if spec["token"] not in ("good", "of-another"):
                return {"error": "no such token"}
            return {"authenticated": True, "user": {"username": spec["token"], "groups": ["g"], "uid": "7"}}
        return {"allowed": spec["user"] == "good"}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    running = Thread(target=made.run_forever)
    running.start()
    yield made
    made.call_soon_threadsafe(made.stop)
    running.join()
    made.close()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviews() -> Reviews:
    return Reviews()


@pytest.fixture
def access(reviews: Reviews, loop: asyncio.AbstractEventLoop, clock: Clock) -> MetricsAccess:
    return MetricsAccess(reviews.create, loop, clock)


@pytest.mark.parametrize(
    ("header", "verdict", "requests"),
    [
        pytest.param("", UNKNOWN, 0, id="no header"),
        pytest.param("Bearer ", UNKNOWN, 0, id="no token"),
        pytest.param("Basic good", UNKNOWN, 0, id="another scheme"),
        pytest.param("Bearer bad", UNKNOWN, 1, id="unknown"),
        pytest.param(OTHER, FORBIDDEN, 2, id="without the permission"),
        pytest.param(GOOD, OK, 2, id="with it"),
        pytest.param("bearer   good ", OK, 2, id="spelled otherwise"),
    ],
)
def test_who_may_read(access: MetricsAccess, reviews: Reviews, header: str, verdict: HTTPStatus, requests: int) -> None:
    assert access.check(header) is verdict
    assert len(reviews.asked) == requests


@pytest.mark.parametrize("header", [GOOD, OTHER, "Bearer bad"])
def test_a_verdict_is_kept_for_a_minute(access: MetricsAccess, reviews: Reviews, clock: Clock, header: str) -> None:
    first = access.check(header)
    asked = len(reviews.asked)
    clock.now += VERDICT_SECONDS - 1
    assert access.check(header) is first
    assert len(reviews.asked) == asked
    clock.now += 1
    access.check(header)
    assert len(reviews.asked) == 2 * asked


def test_no_answer_is_no_permission_and_is_not_kept(access: MetricsAccess, reviews: Reviews) -> None:
    reviews.error = OSError("away")
    assert access.check(GOOD) is HTTPStatus.SERVICE_UNAVAILABLE
    reviews.error = None
    assert access.check(GOOD) is OK


def test_a_machine_that_has_just_booted_asks_and_logs_at_most_once_a_minute(
    reviews: Reviews, loop: asyncio.AbstractEventLoop, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    clock.now = 0.0
    access = MetricsAccess(reviews.create, loop, clock)
    reviews.error = OSError()
    logged = []
    for clock.now in (0.0, 30.0, VERDICT_SECONDS, VERDICT_SECONDS + 30.0):
        assert access.check(GOOD) is HTTPStatus.SERVICE_UNAVAILABLE
        logged.append(len(caplog.records))
    assert logged == [1, 1, 2, 2]
    assert {vars(record)["error"] for record in caplog.records} == {"OSError"}


def test_a_flood_of_tokens_costs_few_requests_and_keeps_nobody_out(
    access: MetricsAccess, reviews: Reviews, clock: Clock
) -> None:
    assert access.check(GOOD) is OK
    reviews.asked.clear()
    verdicts = {access.check(f"Bearer {number}") for number in range(1000)}
    assert verdicts == {UNKNOWN, HTTPStatus.TOO_MANY_REQUESTS}
    assert len(reviews.asked) < _REVIEWS_AT_ONCE
    clock.now += VERDICT_SECONDS + 1
    for number in range(_REVIEWS_AT_ONCE):
        access.check(f"Bearer again-{number}")
    assert access.check("Bearer one-more") is HTTPStatus.TOO_MANY_REQUESTS
    assert access.check(GOOD) is OK


def test_a_request_that_nobody_waits_for_any_more_is_cancelled(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "_REVIEW_SECONDS", 0.01)
    is_cancelled = Event()

    async def create(group: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            is_cancelled.set()
        return {}

    assert MetricsAccess(create, loop).check(GOOD) is HTTPStatus.SERVICE_UNAVAILABLE
    assert is_cancelled.wait(60)


def test_the_number_of_verdicts_is_bounded(access: MetricsAccess, clock: Clock) -> None:
    for number in range(_MOST_VERDICTS + 10):
        clock.now += 1
        assert access.check(f"Bearer {number}") is UNKNOWN
    assert len(access._verdicts) == _MOST_VERDICTS
