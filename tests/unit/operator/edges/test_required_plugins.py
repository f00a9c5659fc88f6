"""What is waited for before capacity is written: the policy where it can be kept, and nothing where it cannot be had at all."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from nodedevice_operator.core.required_plugins import BINDINGS, POLICIES, SETTLE_SECONDS, Spec
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.policy_objects import PolicyObjects
from nodedevice_operator.edges.required_plugins import RequiredPlugins
from nodedevice_operator.errors import Forbidden

from tests.fakes.operator_model import GPU, node_device

RECORD = node_device(runtime="nri")


class Objects(PolicyObjects):
    """The two objects in memory; `refuses` says no to every write."""

    def __init__(self, *, is_served: bool = True, refuses: bool = False) -> None:
        self.is_served, self.refuses = is_served, refuses
        self.specs: dict[str, Spec] = {}

    async def served(self) -> frozenset[str]:
        return frozenset({POLICIES, BINDINGS}) if self.is_served else frozenset({"validatingadmissionpolicies"})

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        return self.specs.get(kind), "1"

    async def apply(self, kind: str, spec: Spec) -> Spec:
        if self.refuses:
            raise Forbidden("patch", kind, "an admission policy says no", 403)
        self.specs[kind] = spec
        return spec

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        await asyncio.Event().wait()
        yield None


class Bench:
    def __init__(self, objects: Objects, *, is_on: bool = True, leads: bool = True) -> None:
        self.now = 1000.0
        cache = Cache()
        cache.nodes.replace([], 1)
        cache.pod_devices.replace([], 1)
        cache.node_devices.replace([RECORD], 1)
        self.objects, self.touched = objects, set[str]()
        self.keeper = RequiredPlugins(
            objects, cache, self.touched.add, Metrics(), is_on=is_on, leads=lambda: leads, clock=lambda: self.now
        )

    @property
    def unguarded(self) -> frozenset[str]:
        return self.keeper.unguarded([RECORD])


@contextlib.asynccontextmanager
async def running(bench: Bench) -> AsyncIterator[None]:
    work: list[Any] = [bench.keeper.work(), *(bench.keeper.watch(kind) for kind in (POLICIES, BINDINGS))]
    tasks = [asyncio.create_task(each) for each in work]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_a_name_waits_until_the_policy_has_settled() -> None:
    bench = Bench(Objects())
    assert bench.unguarded == {GPU}
    async with running(bench):
        await until(lambda: bench.objects.specs.keys() == {POLICIES, BINDINGS})
        assert bench.unguarded == {GPU}
        bench.now += SETTLE_SECONDS
        bench.keeper.wake()
        await until(lambda: bench.touched == {"node-a"})
        assert bench.unguarded == frozenset()


@pytest.mark.parametrize(
    ("is_served", "is_on", "why"),
    [
        pytest.param(False, True, "API server has no MutatingAdmissionPolicy v1", id="not served"),
        pytest.param(True, False, "policy is switched off", id="switched off"),
    ],
)
async def test_nothing_is_waited_for_where_there_is_no_policy_and_the_log_says_what_to_do(
    is_served: bool, is_on: bool, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def told() -> list[logging.LogRecord]:
        return [record for record in caplog.records if record.message.startswith(why)]

    bench = Bench(Objects(is_served=is_served), is_on=is_on)
    async with running(bench):
        await until(lambda: bench.unguarded == frozenset() and bool(told()))
        for _ in range(3):
            bench.keeper.wake()
            await asyncio.sleep(0)
        assert bench.keeper.lacks_policies is not is_served
        assert ("node-a" in bench.touched) is not is_served
    assert bench.objects.specs == {}
    assert ["docs/install.md" in str(record.__dict__["remedy"]) for record in told()] == [True]


async def test_refused_is_told_once_and_the_name_goes_on_waiting(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects(refuses=True))

    def told() -> list[str]:
        return [record.message for record in caplog.records if "cannot be kept" in record.message]

    async with running(bench):
        await until(lambda: bool(told()))
        for _ in range(3):
            bench.keeper.wake()
            await asyncio.sleep(0)
        bench.now += 1000
        assert bench.unguarded == {GPU}
        assert len(told()) == 1
        bench.objects.refuses = False
        bench.keeper.wake()
        await until(lambda: bench.objects.specs.keys() == {POLICIES, BINDINGS})


async def test_a_standby_writes_nothing() -> None:
    bench = Bench(Objects(), leads=False)
    async with running(bench):
        await until(lambda: bench.keeper._wanted == (GPU,))
    assert bench.objects.specs == {}
