"""Binds against an API that refuses, is away, or does not say what it did: nothing is promised twice, nothing stays for ever."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from nodedevice_common.tasks import problems
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.extender.binder import MOST_SENT, MOST_UNDER_WAY, UNSEEN_SECONDS, Binder
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.wire import BindRequest

from tests.fakes.operator.collaborators import Clock, running
from tests.fakes.virtual_time import later, virtual_time

pytestmark = virtual_time
POD = BindRequest("pod", "default", "uid", "node")
OTHER = BindRequest("other", "default", "uid-2", "node")
ASSIGNED = {"example.com/gpu": {"main": {"GPU-1": 4}}}
# what a pod needs is the fleet's matter
NEEDS: Any = "needs"


class FleetModel(Fleet):
    """Promises what it is asked for; `state` is promised, confirmed, gone or empty."""

    def __init__(self) -> None:
        self.answer: Any = ASSIGNED
        self.states: dict[str, str] = {}
        self.expired_at = 0.0

    def assign(self, uid: str, needs: Any, node: str, now: float) -> Any:
        return self.answer

    def promise(self, uid: str, needs: Any, node: str, assigned: Any, now: float) -> None:
        self.states[uid] = "promised"

    def confirm(self, uid: str) -> None:
        self.states[uid] = "confirmed"

    def withdraw(self, uid: str) -> None:
        self.states.pop(uid, None)

    def pod_gone(self, uid: str, now: float) -> None:
        self.states[uid] = "gone"

    def expire(self, now: float) -> None:
        self.expired_at = now


class Api(PodsApi):
    """Answers `results` to binds, in that order, and shows `pod` to reads; None: no pod has that name.

    pod: uid and node, and "ended" if it has. odd: names of pods whose reads fail in an unexpected way. seconds: what each read
    takes of the loop's time.
    """

    def __init__(self) -> None:
        self.results: list[ApiError | None] = []
        self.pod: tuple[str, ...] | ApiError | None = ("uid", "")
        self.odd: set[str] = set()
        self.seconds = 0
        self.bound: list[Any] = []
        self.let = asyncio.Event()
        self.let.set()
        self.waiting = 0

    async def bind(self, pod: BindRequest, assigned: Any) -> None:
        self.waiting += 1
        await self.let.wait()
        self.waiting -= 1
        result = self.results.pop(0) if self.results else None
        if result is not None:
            raise result
        self.bound.append((pod.name, assigned))

    async def read(self, pod: BindRequest) -> tuple[str, str, bool]:
        if self.seconds:
            await later(self.seconds)
        if pod.name in self.odd:
            raise ValueError("odd")
        if self.pod is None:
            raise NotFound("GET", "pods", "not found", 404)
        if isinstance(self.pod, ApiError):
            raise self.pod
        uid, node, *ended = self.pod
        return uid, node, bool(ended)

    async def needs(self, pod: BindRequest) -> Any:
        await self.read(pod)
        return NEEDS


@dataclass
class Bench:
    fleet: FleetModel = field(default_factory=FleetModel)
    api: Api = field(default_factory=Api)
    clock: Clock = field(default_factory=Clock)
    metrics: ExtenderMetrics = field(default_factory=ExtenderMetrics)

    def __post_init__(self) -> None:
        self.binder = Binder(self.fleet, self.api, self.metrics, self.clock)
        self.binder.remember("uid", NEEDS)

    @property
    def state(self) -> Any:
        return self.fleet.states.get("uid")

    @property
    def unseen(self) -> float | None:
        return self.metrics.registry.get_sample_value("nodedevice_extender_unseen_binds")

    async def unseen_is_over(self) -> None:
        """Binds of which no watch has shown the pod are resolved."""
        self.clock.now += UNSEEN_SECONDS
        await self.binder.resolve_due()

    def pods(self, count: int) -> list[BindRequest]:
        """Pods whose needs are known."""
        made = [BindRequest(f"pod-{number}", "default", f"uid-{number}", "node") for number in range(count)]
        for pod in made:
            self.binder.remember(pod.uid, NEEDS)
        return made


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_its_work_resolves_what_is_due_and_lets_the_fleet_forget(bench: Bench) -> None:
    """A standby gets no requests, and sees every pod of the cluster."""
    bench.api.pod = None
    assert await bench.binder.bind(POD) == ""
    bench.clock.now += UNSEEN_SECONDS
    async with running(bench.binder.work()):
        await asyncio.sleep(2)
    assert (bench.state, bench.unseen, bench.fleet.expired_at) == ("gone", 0, bench.clock.now)


async def test_one_that_cannot_be_decided_keeps_no_other_waiting_and_is_named(bench: Bench) -> None:
    bench.binder.remember(OTHER.uid, NEEDS)
    for pod in (POD, OTHER):
        assert await bench.binder.bind(pod) == ""
    bench.api.pod, bench.api.odd = None, {POD.name}
    await bench.unseen_is_over()
    assert bench.fleet.states == {"uid": "confirmed", "uid-2": "gone"}
    assert problems() == (f"binds of unknown outcome {POD.key} fails and is tried again: odd",)


async def test_a_bind_that_is_made_again_while_another_is_read_is_not_decided(bench: Bench) -> None:
    bench.api.seconds = 1
    for pod in (POD, OTHER):
        bench.binder.remember(pod.uid, NEEDS)
        bench.api.results = [unreachable()]
        await bench.binder.bind(pod)
    resolving = asyncio.create_task(bench.unseen_is_over())
    await asyncio.sleep(0.5)
    assert await bench.binder.bind(POD) == "an earlier bind of this pod is still under way", "its read is"
    # kube-scheduler repeats the bind of the second: its request is on its way now
    bench.api.results = [unreachable()]
    assert "until the outcome is known" in await bench.binder.bind(OTHER)
    await resolving
    assert bench.fleet.states == {"uid-2": "promised"}, "the first was not bound, the second may be"
    assert await bench.binder.bind(POD) == ""


def unreachable() -> ApiError:
    return Unreachable("POST", "pods/binding", "cut")


async def test_a_bind_is_one_write_with_the_parts_and_confirms_the_promise(bench: Bench) -> None:
    assert await bench.binder.bind(POD) == ""
    assert (bench.api.bound, bench.state, bench.unseen) == ([("pod", ASSIGNED)], "confirmed", 1)
    bench.binder.seen("uid")
    assert bench.unseen == 0


async def test_what_no_longer_fits_is_an_error_and_a_conflict(bench: Bench) -> None:
    bench.fleet.answer = NotFitting("no GPU of node has 4 parts")
    assert await bench.binder.bind(POD) == "no GPU of node has 4 parts"
    assert (bench.api.bound, bench.state) == ([], None)
    assert bench.metrics.registry.get_sample_value("nodedevice_extender_bind_conflicts_total") == 1


@pytest.mark.parametrize(
    "error",
    [
        Forbidden("POST", "pods/binding", "no role", 403),
        Invalid("POST", "pods/binding", "no", 422),
        NotLeading("POST", "pods/binding", "time is over"),
        Unavailable("POST", "pods/binding", "busy for longer", 429, retry_after_seconds=5),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_was_certainly_not_done_is_withdrawn(bench: Bench, error: ApiError) -> None:
    bench.api.results = [error]
    assert (await bench.binder.bind(POD)).startswith("cannot bind: POST pods/binding")
    assert (bench.state, bench.unseen) == (None, 0)


async def test_a_busy_api_server_is_asked_again_after_the_time_that_it_names(bench: Bench) -> None:
    busy = Unavailable("POST", "pods/binding", "busy", 429, retry_after_seconds=1)
    bench.api.results = [busy, busy]
    began = asyncio.get_running_loop().time()
    assert await bench.binder.bind(POD) == ""
    assert asyncio.get_running_loop().time() - began == pytest.approx(2)
    assert (bench.state, bench.api.results) == ("confirmed", [])
    # kube-scheduler waits for five seconds
    bench.api.results = [busy] * 10
    assert (await bench.binder.bind(OTHER)).startswith("cannot bind: POST pods/binding: busy")
    assert asyncio.get_running_loop().time() - began == pytest.approx(6)
    assert "uid-2" not in bench.fleet.states


async def test_so_many_binds_are_sent_at_a_time_and_a_filter_waits_while_more_wait(bench: Bench) -> None:
    bench.api.let.clear()
    loop = asyncio.get_running_loop()
    pods = bench.pods(MOST_UNDER_WAY)
    tasks = [asyncio.create_task(bench.binder.bind(pod)) for pod in pods[:-1]]
    await asyncio.sleep(0)
    began = loop.time()
    await bench.binder.wait_for_room()
    assert loop.time() == began
    tasks.append(asyncio.create_task(bench.binder.bind(pods[-1])))
    await asyncio.sleep(0)
    assert bench.api.waiting == MOST_SENT
    assert len(bench.fleet.states) == MOST_UNDER_WAY, "parts are promised before the request is sent"
    await bench.binder.wait_for_room()
    assert loop.time() - began == pytest.approx(2), "it waits no longer than kube-scheduler does"
    loop.call_later(1, bench.api.let.set)
    await bench.binder.wait_for_room()
    assert loop.time() - began == pytest.approx(3)
    assert await asyncio.gather(*tasks) == [""] * MOST_UNDER_WAY


async def test_a_busy_api_server_gets_fewer_binds_at_a_time(bench: Bench) -> None:
    """It serves twelve at once. Of 32 without an end, some would be refused for longer than kube-scheduler waits."""
    seats = asyncio.Semaphore(12)

    async def bind(pod: BindRequest, assigned: Any) -> None:
        if seats.locked():
            raise Unavailable("POST", "pods/binding", "busy", 429, retry_after_seconds=1)
        async with seats:
            await asyncio.sleep(0.7)

    bench.api.bind = bind  # type: ignore[method-assign]
    assert await asyncio.gather(*map(bench.binder.bind, bench.pods(300))) == [""] * 300


async def test_a_bind_that_is_cancelled_frees_its_place(bench: Bench) -> None:
    bench.api.let.clear()
    tasks = [asyncio.create_task(bench.binder.bind(pod)) for pod in bench.pods(MOST_SENT + 2)]
    await asyncio.sleep(0)
    # one that waits for a place, and one that has one
    for task in (tasks[-2], tasks[0]):
        task.cancel()
    await later(0.1)
    assert bench.api.waiting == MOST_SENT + 1, "the last one has got the place of the first"
    bench.api.let.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(each == "" for each in found) == MOST_SENT


@pytest.mark.parametrize(
    ("pod", "problem", "state"),
    [
        pytest.param(None, "the pod was deleted", "gone", id="gone"),
        pytest.param(("other", ""), "the pod was deleted, and another pod has its name", "gone", id="made again"),
        pytest.param(("uid", "elsewhere"), "the pod is bound to node elsewhere already", None, id="elsewhere"),
        pytest.param(("uid", "node"), "", "confirmed", id="bound by an earlier request"),
    ],
)
async def test_a_conflict_is_decided_by_a_read(
    bench: Bench, pod: tuple[str, str] | None, problem: str, state: str | None
) -> None:
    bench.api.results = [Conflict("POST", "pods/binding", "conflict", 409)]
    bench.api.pod = pod
    assert await bench.binder.bind(POD) == problem
    assert bench.state == state


@pytest.mark.parametrize("error", [unreachable(), Unavailable("POST", "pods/binding", "timeout", 504)])
async def test_of_an_unknown_outcome_the_promise_stays_until_a_read_decides_it(bench: Bench, error: ApiError) -> None:
    bench.api.results = [error]
    assert "until the outcome is known" in await bench.binder.bind(POD)
    bench.clock.now -= 1
    await bench.unseen_is_over()
    assert bench.state == "promised"
    bench.clock.now += 1
    bench.api.pod = unreachable()
    await bench.binder.resolve_due()
    assert bench.state == "promised"
    bench.api.pod = ("uid", "")
    await bench.binder.resolve_due()
    assert (bench.state, bench.unseen) == (None, 0)


async def test_a_refusal_after_an_unknown_outcome_withdraws_nothing(bench: Bench) -> None:
    bench.api.results = [unreachable(), Forbidden("POST", "pods/binding", "no", 403), Conflict("POST", "p", "c", 409)]
    await bench.binder.bind(POD)
    assert "until the outcome is known" in await bench.binder.bind(POD)
    assert bench.state == "promised"
    assert await bench.binder.bind(POD) == "the outcome of the bind of this pod is still unknown"
    assert bench.state == "promised"


@pytest.mark.parametrize("end", [None, ("uid", "node", "ended")])
async def test_what_no_watch_has_shown_is_read(bench: Bench, end: tuple[str, ...] | None) -> None:
    assert await bench.binder.bind(POD) == ""
    bench.api.pod = ("uid", "node")
    await bench.unseen_is_over()
    assert (bench.state, bench.unseen) == ("confirmed", 1)
    # deleted, or ended, before any watch has shown it
    bench.api.pod = end
    await bench.unseen_is_over()
    assert (bench.state, bench.unseen) == ("gone", 0)


async def test_a_pod_is_bound_by_one_request_at_a_time(bench: Bench) -> None:
    bench.api.let.clear()
    first = asyncio.create_task(bench.binder.bind(POD))
    await asyncio.sleep(0)
    assert await bench.binder.bind(POD) == "an earlier bind of this pod is still under way"
    await bench.unseen_is_over()
    assert bench.state == "promised"
    bench.api.let.set()
    assert await first == ""


async def test_the_needs_of_a_pod_that_filter_has_not_seen_are_read(bench: Bench) -> None:
    bench.binder.seen("uid")
    assert await bench.binder.bind(POD) == ""
    bench.api.pod = unreachable()
    bench.binder.seen("uid")
    assert await bench.binder.bind(POD) == "cannot read the pod: POST pods/binding: cut"
