"""What holds capacity back while pods that wait already are marked, and what does not."""

import logging
from collections.abc import AsyncIterator

import pytest
from nodedevice_operator.core.waiting_pods import UnboundPod
from nodedevice_operator.edges.unbound_pods import UnboundPods
from nodedevice_operator.edges.waiting_pods import WaitingPods
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)

from tests.fakes.operator_model import GPU, NIC

PODS = [UnboundPod("a", f"pod-{number}", f"uid-{number}", "Pending", frozenset({GPU})) for number in range(3)]


class Pods(UnboundPods):
    """Pods in memory, a page each. hides: what each listing fails with; refuses: what each patch does."""

    def __init__(self, hides: ApiError | None = None, refuses: ApiError | None = None, *, marks: bool = True) -> None:
        self.hides, self.refuses, self.marks = hides, refuses, marks
        self.lists = 0
        self.patched: list[str] = []

    async def pages(self) -> AsyncIterator[list[UnboundPod]]:
        self.lists += 1
        if self.hides is not None:
            raise self.hides
        for pod in PODS:
            yield [pod]

    async def admit_again(self, pod: UnboundPod) -> bool:
        self.patched.append(pod.name)
        if self.refuses is not None and pod is PODS[1]:
            raise self.refuses
        return self.marks


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_each_pod_is_patched_once_and_the_name_is_done(caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods()
    waiting = WaitingPods(pods, is_on=True)
    assert waiting.lacks(GPU)
    for _ in range(2):
        assert await waiting.see_to([GPU], []) is None
    assert not waiting.lacks(GPU)
    assert waiting.lacks(NIC)
    assert (pods.lists, sorted(pods.patched)) == (1, ["pod-0", "pod-1", "pod-2"])
    assert told(caplog) == []


async def test_what_is_advertised_is_done_unless_the_policy_lost_it() -> None:
    pods = Pods()
    waiting = WaitingPods(pods, is_on=True)
    assert await waiting.see_to([GPU], [GPU]) is None
    assert (waiting.lacks(GPU), pods.lists) == (False, 0)
    waiting.added([GPU])
    assert waiting.lacks(GPU)
    await waiting.see_to([GPU], [GPU])
    assert (waiting.lacks(GPU), pods.lists) == (False, 1)


async def test_a_name_that_goes_and_comes_again_is_looked_for_again() -> None:
    pods = Pods()
    waiting = WaitingPods(pods, is_on=True)
    await waiting.see_to([GPU], [])
    waiting.keep_only([])
    await waiting.see_to([GPU], [])
    assert pods.lists == 2


async def test_nothing_is_asked_where_it_is_off() -> None:
    pods = Pods()
    waiting = WaitingPods(pods, is_on=False)
    assert not waiting.lacks(GPU)
    waiting.added([GPU])
    assert await waiting.see_to([GPU], []) is None
    assert pods.lists == 0


@pytest.mark.parametrize("gone", [NotFound("PATCH", "pods", "gone", 404), Conflict("PATCH", "pods", "another", 409)])
async def test_a_pod_that_is_gone_is_no_trouble(gone: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods(refuses=gone)
    assert await WaitingPods(pods, is_on=True).see_to([GPU], []) is None
    assert len(pods.patched) == 3
    assert told(caplog) == []


@pytest.mark.parametrize(
    ("refuses", "marks", "count", "problem"),
    [
        pytest.param(Denied("PATCH", "pods", "nobody changes it", 403), True, 1, "nobody changes it", id="denied"),
        pytest.param(Invalid("PATCH", "pods", "odd", 422), True, 1, "odd", id="invalid"),
        pytest.param(None, False, 3, "did not change it", id="not marked"),
    ],
)
async def test_pods_that_are_not_marked_are_told_once_and_hold_nothing_back(
    refuses: ApiError | None, marks: bool, count: int, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    pods = Pods(refuses=refuses, marks=marks)
    waiting = WaitingPods(pods, is_on=True)
    for _ in range(2):
        assert await waiting.see_to([GPU], []) is None
    assert not waiting.lacks(GPU)
    assert len(pods.patched) == 3
    (line,) = told(caplog)
    assert (line.levelname, line.__dict__["pods"]) == ("WARNING", count)
    assert problem in line.__dict__["problem"]
    assert "docs/security.md" in line.__dict__["remedy"]


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
async def test_a_right_that_is_missing_is_told_once_and_holds_nothing_back(
    verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = Forbidden(verb, "pods", "no such role", 403)
    pods = Pods(hides=error) if verb == "GET" else Pods(refuses=error)
    waiting = WaitingPods(pods, is_on=True)
    for _ in range(2):
        assert await waiting.see_to([GPU], []) is None
    assert not waiting.lacks(GPU)
    (line,) = told(caplog)
    assert (line.levelname, line.__dict__["resource_names"]) == ("ERROR", [GPU])
    assert "no such role" in line.__dict__["problem"]
    assert "docs/security.md" in line.__dict__["remedy"]


async def seconds_held_back(waiting: WaitingPods, clock: Clock, most: float) -> float:
    """How long the name is held back, up to about `most` seconds."""
    began = clock.now
    while (pause := await waiting.see_to([GPU], [])) is not None and clock.now - began < most:
        # who asks too early is told to wait, and nothing is sent
        assert await waiting.see_to([GPU], []) == pytest.approx(pause)
        clock.now += pause
    return clock.now - began


async def test_passing_trouble_holds_a_name_back_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pods = Pods(hides=Unavailable("GET", "pods", "webhook away", 500))
    waiting = WaitingPods(pods, is_on=True, clock=clock)
    assert 20 < await seconds_held_back(waiting, clock, 1000) < 60
    assert not waiting.lacks(GPU)
    assert [line.levelname for line in told(caplog)] == ["ERROR"]


async def test_an_api_server_that_is_away_holds_it_back_until_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pods = Pods(hides=Unreachable("GET", "pods", "nobody there"))
    waiting = WaitingPods(pods, is_on=True, clock=clock)
    assert await seconds_held_back(waiting, clock, 300) >= 300
    pods.hides = None
    clock.now += 60
    assert await waiting.see_to([GPU], []) is None
    assert len(pods.patched) == 3
    assert told(caplog) == []


async def test_it_comes_back_when_the_api_server_says() -> None:
    pods = Pods(refuses=Unavailable("PATCH", "pods", "busy", 429, 40.0))
    assert await WaitingPods(pods, is_on=True).see_to([GPU], []) == 40.0


async def test_whoever_leads_no_more_leaves_it_to_the_next() -> None:
    waiting = WaitingPods(Pods(refuses=NotLeading("PATCH", "pods", "another leads")), is_on=True)
    with pytest.raises(NotLeading):
        await waiting.see_to([GPU], [])
    assert waiting.lacks(GPU)
