"""The policy is read and watched: when it is tried again, and restored; and what is reported of it."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from nodedevice_kube.api_errors import ApiError, Forbidden, Unauthorized, Unavailable, WatchInterrupted
from nodedevice_operator.requiredplugins.policy import BINDINGS, KINDS, NAME, POLICIES, SETTLE_SECONDS, Spec

from tests.fakes.operator.operator_model import GPU
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.requiredplugins.bench import Bench, Objects, reported

pytestmark = virtual_time

CANNOT_READ, CAN_READ = "policy cannot be read", "policy can be read again"


@pytest.mark.parametrize(
    ("objects", "kinds"),
    [
        pytest.param(Objects(hides=Forbidden("GET", POLICIES, "no role", 403)), [POLICIES, BINDINGS], id="no right"),
        pytest.param(Objects(hides=Unavailable("GET", POLICIES, "no role", 500)), [POLICIES, BINDINGS], id="stored"),
        pytest.param(Objects(hides_all=Forbidden("GET", "apis", "no role", 403)), ["apis"], id="no list of kinds"),
    ],
)
async def test_a_policy_that_cannot_be_read_is_reported_and_retried(
    objects: Objects, kinds: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    bench = Bench(objects)
    async with bench:
        await asyncio.sleep(30)
        assert bench.unguarded == {GPU}
        lines = [line.__dict__ for line in reported(caplog, CANNOT_READ)]
        assert sorted((line["kind"], line["levelname"]) for line in lines) == sorted((kind, "ERROR") for kind in kinds)
        assert all("no role" in line["error"] for line in lines)
        assert all("docs/security.md" in line["remedy"] for line in lines)
        objects.hides = objects.hides_all = None
        await bench.until_written()
        assert len(reported(caplog, CAN_READ)) == len(kinds)
        # what works and fails again is reported again
        objects.hides = Forbidden("GET", POLICIES, "no role", 403)
        objects.cut()
        await until(lambda: len(reported(caplog, CANNOT_READ)) == len(kinds) + 2)


async def test_what_can_no_longer_be_read_is_a_warning_and_names_stay(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects())
    async with bench:
        await bench.until_written()
        bench.now += SETTLE_SECONDS
        bench.objects.hides = Forbidden("GET", POLICIES, "no such role any more", 403)
        bench.objects.cut()
        before = bench.objects.reads
        await until(lambda: bench.objects.reads >= before + 4)
        assert bench.unguarded == frozenset()
    lines = [(line.levelname, line.__dict__["kind"]) for line in reported(caplog, CANNOT_READ)]
    assert sorted(lines) == [("WARNING", POLICIES), ("WARNING", BINDINGS)]


@pytest.mark.parametrize(
    "why", [Unavailable("GET", POLICIES, "later", 503), Unauthorized("GET", POLICIES, "a token of yesterday", 401)]
)
async def test_an_unreachable_api_server_is_reported_elsewhere(why: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(Objects(hides=why))
    async with bench:
        await until(lambda: bench.objects.reads >= 6)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_watch_that_is_cut_again_and_again_is_reopened_as_soon() -> None:
    class Cut(Objects):
        async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
            raise WatchInterrupted("watch", kind, "the load balancer has closed it")
            yield None

    bench = Bench(Cut())
    async with bench:
        await asyncio.sleep(60)
    # each half a second
    assert bench.objects.reads >= 2 * 60 / 0.5 - 2


@pytest.mark.parametrize("kind", [POLICIES, BINDINGS])
async def test_who_undoes_it_again_and_again_is_undone_twice_and_reported_once(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(Objects())
    async with bench:
        await bench.until_written()
        first = bench.objects.writes
        for count in (1, 2):
            bench.objects.vanish(kind)
            await until(lambda: kind in bench.objects.specs)
            assert bench.objects.writes == first + count
        for _ in range(80):
            bench.objects.vanish(kind)
            await asyncio.sleep(1)
        assert bench.objects.writes == first + 2
        [event] = bench.recorder.posted
        assert (event.about.kind, event.about.name) == (KINDS[kind], NAME)
        assert "it is written again in 60 s" in event.message
        assert [record.levelname for record in caplog.records if "keeps undoing" in record.message] == ["WARNING"]
        # the other object is restored meanwhile
        other = ({POLICIES, BINDINGS} - {kind}).pop()
        bench.objects.vanish(other)
        await until(lambda: other in bench.objects.specs)
        assert kind not in bench.objects.specs
        # and the pause ends by itself
        bench.now += 61
        bench.keeper.wake()
        await until(lambda: kind in bench.objects.specs)


async def test_a_write_that_fails_is_no_change_of_anybody_elses() -> None:
    bench = Bench(Objects())
    async with bench:
        await bench.until_written()
        bench.objects.refuses = True
        bench.objects.vanish(POLICIES)
        for _ in range(5):
            bench.keeper.wake()
            await asyncio.sleep(1)
        bench.objects.refuses = False
        bench.keeper.wake()
        await until(lambda: POLICIES in bench.objects.specs)
        assert bench.recorder.posted == []
