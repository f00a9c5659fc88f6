"""Too many Events: which are kept, how fast they are posted, whose turn it is, and how the rest is counted."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.observability.aggregates import DeviceAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod
from nodedevice_operator.observability.fair_queue import FairQueue

from tests.fakes.log_lines import log_lines
from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.observability.recording import Recorder, event

pytestmark = virtual_time


async def test_the_newest_are_kept_when_there_are_too_many(caplog: pytest.LogCaptureFixture) -> None:
    waiting = Recorder()
    for number in range(1003):
        waiting.post(event(str(number)))
    assert waiting.lost() == 3
    full = "Event queue is full; dropping the oldest"
    assert log_lines(caplog.records) == [("WARNING", full, {"events": 1})]
    # once a minute: how many there were since; the sum of these is an Event, too
    await asyncio.sleep(60)
    waiting.post(event("1003"))
    assert log_lines(caplog.records)[1:] == [("WARNING", full, {"events": 3})]
    messages = await waiting.posted()
    assert [text for text in messages if "more Event" not in text] == [str(number) for number in range(5, 1004)]


async def test_a_standby_keeps_the_newest() -> None:
    recorder = Recorder(fence=(fence := WriteFence()))
    for number in range(1003):
        recorder.post(event(str(number)))
    fence.open_for_good()
    recorder.take_over(0.0)
    assert await recorder.posted() == [str(number) for number in range(3, 1003)]
    assert recorder.lost() == 0


async def test_those_that_are_too_many_are_summed_up() -> None:
    waiting = Recorder()
    warning = replace(event("broken"), type=WARNING, reason="Broken")
    for number in range(1003):
        waiting.post(warning if number == 1 else event(str(number)))
    await waiting.posted(59)
    assert waiting.sums() == []
    await waiting.posted(2)
    assert sorted((found.type, found.reason, found.message.partition(",")[0]) for found in waiting.sums()) == [
        (NORMAL, "Test", "2 more Events with this reason"),
        (WARNING, "Broken", "1 more Event with this reason"),
    ]
    await waiting.posted(120)
    assert len(waiting.sums()) == 2


async def test_of_one_node_a_few_hundred_are_posted_and_the_rest_is_counted() -> None:
    """Twenty thousand objects of its token that break are as many Events."""
    waiting = Recorder()
    mad, other = (About("v1", "NodeDevice", "", f"o-{node}", f"uid-{node}", node) for node in ("mad", "other"))
    async with running(waiting.work()):
        for second in range(100):
            for number in range(20):
                waiting.post(Event(mad, WARNING, "Broken", f"{second}-{number}"))
            waiting.post(Event(other, WARNING, "Broken", f"other {second}"))
            await asyncio.sleep(1)
        await asyncio.sleep(60)
    posted = [found.about.name for found in waiting.cluster.events]
    assert posted.count("o-other") == 100
    assert 300 <= posted.count("o-mad") <= 400
    counted = sum(int(found.message.split()[0]) for found in waiting.sums())
    assert counted + posted.count("o-mad") == 2000
    assert len(waiting.sums()) <= 3
    assert waiting.lost() == counted


async def test_one_node_that_reports_without_end_keeps_no_other_waiting() -> None:
    """Its token is enough for that: 256 waiting pods, ten times a second."""
    recorder = Recorder()
    recorder.cluster.pods["default", "pod-a"] = PodRecord("uid-a", "mad")
    async with running(recorder.work()):
        for number in range(2000):
            recorder.post(event(str(number), on_node="mad"))
        await asyncio.sleep(1)
        about = About("v1", "Node", "", "node-b", "uid", "node-b")
        recorder.post(Event(about, WARNING, "Test", "another's"))
        posted = len(recorder.cluster.events)
        await asyncio.sleep(1)
        assert "another's" in [found.message for found in recorder.cluster.events[: posted + 3]]


async def test_a_flood_waits_and_is_not_lost() -> None:
    flooded = Recorder()
    for number in range(150):
        flooded.post(event(str(number)))
    async with running(flooded.work()):
        await asyncio.sleep(0.01)
        assert len(flooded.cluster.events) == 100
        # twenty in a second
        await asyncio.sleep(2.4)
        assert 145 <= len(flooded.cluster.events) < 150
        await asyncio.sleep(0.1)
        assert len(flooded.cluster.events) == 150


async def test_an_event_about_thousands_of_devices_takes_a_few_kilobytes() -> None:
    recorder = Recorder()
    ids = frozenset(f"gpu-{number:04}" for number in range(4096))
    aggregate = DeviceAggregate("example.com/gpu", "node-a", ids, frozenset(f"{i}".rjust(128, "x") for i in ids))
    recorder.post(Event(about_pod("default", "a", "u"), WARNING, "Test", aggregate.sentence(), aggregate=aggregate))
    await recorder.posted()
    [posted] = recorder.cluster.events
    assert isinstance(posted.aggregate, DeviceAggregate)
    assert (len(posted.aggregate.device_ids), len(posted.aggregate.reasons), len(posted.message)) == (64, 8, 1024)
    # as many, and the first of them by name
    assert posted.message.startswith("4096 devices (gpu-0000, ")


async def all_of(queue: FairQueue[str], count: int) -> list[str]:
    return [await queue.get() for _ in range(count)]


async def test_origins_take_turns_and_each_keeps_its_order() -> None:
    queue = FairQueue[str](100)
    for item in ("a1", "a2", "a3", "b1", "c1", "c2"):
        assert queue.put(item, item[0]) is None
    assert await all_of(queue, 3) == ["a1", "b1", "c1"]
    # one that comes again is at the end of those that wait
    queue.put("b2", "b")
    assert await all_of(queue, 4) == ["a2", "c2", "b2", "a3"]


async def test_what_is_too_much_is_taken_from_whoever_has_most() -> None:
    queue = FairQueue[str](4)
    for item in ("b1", "a1", "a2", "a3"):
        assert queue.put(item, item[0]) is None
    assert queue.put("c1", "c") == "a1"
    assert queue.put("a4", "a") == "a2"
    assert await all_of(queue, 4) == ["b1", "a3", "c1", "a4"]
