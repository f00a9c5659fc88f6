"""Somebody undoes the policy again and again: it is restored a few times, that is reported, and then it waits."""

import asyncio

import pytest
from nodedevice_operator.requiredplugins.policy import BINDINGS, KINDS, NAME, POLICIES

from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.requiredplugins.bench import Bench, Objects


@virtual_time
@pytest.mark.parametrize("kind", [POLICIES, BINDINGS])
async def test_it_is_restored_twice_and_reported_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
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


@virtual_time
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
