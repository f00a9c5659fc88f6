"""Somebody undoes the policy again and again: it is restored a few times, that is reported, and then it waits."""

import asyncio

import pytest
from nodedevice_operator.contention import Contention
from nodedevice_operator.requiredplugins.policy import BINDINGS, KINDS, NAME, POLICIES

from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.requiredplugins.bench import Bench, Objects


def changed_at(times: list[float]) -> list[float]:
    """Of an object that others undo at these moments: when it is written again."""
    contention, written = Contention(), []
    for now in times:
        contention = contention.undone(now)
        if contention.wait_seconds(now) == 0:
            contention = contention.repaired(now)
            written.append(now)
    return written


@pytest.mark.parametrize(
    ("times", "written"),
    [
        ([0, 1], [0, 1]),
        ([0, 1, 2, 3, 60], [0, 1]),
        # each a minute after the one before the last
        ([0, 30, 60, 90, 120, 150], [0, 30, 60, 90, 120, 150]),
        # the pause is over, and the next one is twice as long
        ([0, 1, 2, 62, 63, 64, 183, 184], [0, 1, 62, 63, 184]),
        # after a long quiet it is short again
        ([0, 1, 2, 1000, 1001, 1002, 1061, 1062], [0, 1, 1000, 1001, 1062]),
    ],
)
def test_the_third_time_within_a_minute_it_waits(times: list[float], written: list[float]) -> None:
    assert changed_at([10_000 + time for time in times]) == [10_000 + time for time in written]


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
