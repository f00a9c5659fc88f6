"""Too many Events: which are kept, how fast they are posted, and how the rest is counted."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.observability import recorder as module
from nodedevice_operator.observability.aggregates import DeviceAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod

from tests.fakes.log_lines import log_lines
from tests.fakes.operator.collaborators import Clock, open_fence, running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.observability.recording import Recorder, event


async def test_the_newest_are_kept_when_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "_PER_SECOND", 1e9)
    waiting = Recorder()
    for number in range(1003):
        waiting.post(event(str(number)))
    assert waiting.lost() == 3
    full = "Event queue is full; dropping the oldest"
    assert log_lines(caplog.records) == [("WARNING", full, {"events": 1})]
    # once a minute: how many there were since
    waiting._clock = lambda: Clock.now + module._DROPPED_LOG_SECONDS
    waiting.post(event("1003"))
    assert log_lines(caplog.records)[1:] == [("WARNING", full, {"events": 3})]
    assert waiting.lost() == 4
    async with running(waiting.work()):
        waiting.post(event("one more"))
        messages = await waiting.posted()
    assert messages[0] == "6"  # four, then one each for the two that came since


async def test_of_what_is_not_ours_to_post_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_STANDBY", 2)
    fence = open_fence()
    recorder = Recorder(fence=fence)
    fence.close()
    for number in range(3):
        recorder.post(event(f"standby {number}"))
        recorder._keep(event(f"too late {number}"))
    fence.open_for_good()
    recorder.take_over(0.0)
    async with running(recorder.work()):
        assert await recorder.posted() == ["too late 1", "too late 2", "standby 1", "standby 2"]


@virtual_time
async def test_those_that_are_too_many_are_summed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PER_SECOND", 1e9)
    waiting = Recorder()
    warning = replace(event("broken"), type=WARNING, reason="Broken")
    for number in range(1003):
        waiting.post(warning if number == 1 else event(str(number)))
    async with running(waiting.work()):
        await asyncio.sleep(59)
        assert not [found for found in waiting.cluster.events if found.about.kind != "Pod"]
        await asyncio.sleep(2)
        sums = [found for found in waiting.cluster.events if found.about.kind != "Pod"]
        assert {found.about.kind for found in sums} == {"CustomResourceDefinition"}
        assert sorted((found.type, found.reason, found.message.partition(",")[0]) for found in sums) == [
            (NORMAL, "Test", "2 more Events with this reason"),
            (WARNING, "Broken", "1 more Event with this reason"),
        ]
        await asyncio.sleep(120)
        assert len([found for found in waiting.cluster.events if found.about.kind != "Pod"]) == 2


@virtual_time
async def test_of_one_node_a_few_hundred_are_posted_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand objects of its token that break are as many Events."""
    monkeypatch.setattr(module, "_PER_SECOND", 1e9)
    waiting = Recorder()
    waiting._clock = asyncio.get_running_loop().time
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
    assert module._BURST_OF_NODE <= posted.count("o-mad") <= module._BURST_OF_NODE + 100
    sums = [found.message for found in waiting.cluster.events if found.about.kind == "CustomResourceDefinition"]
    counted = sum(int(text.split()[0]) for text in sums)
    assert counted + posted.count("o-mad") == 2000
    assert len(sums) <= 3
    assert waiting.lost() == counted


@virtual_time
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


async def test_a_flood_waits_and_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    really_sleep = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await really_sleep(0)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    flooded = Recorder()
    for number in range(150):
        flooded.post(event(str(number)))
    async with running(flooded.work()), asyncio.timeout(60):
        while len(flooded.cluster.events) < 150:
            await really_sleep(0)
    assert len([seconds for seconds in pauses if seconds > 0]) == 50
    assert pauses[-1] == pytest.approx(50 / 20)


async def test_an_event_about_thousands_of_devices_waits_in_a_few_kilobytes() -> None:
    fence = WriteFence()
    recorder = Recorder(fence=fence)
    ids = frozenset(f"gpu-{number:04}" for number in range(4096))
    aggregate = DeviceAggregate("example.com/gpu", "node-a", ids, frozenset(f"{i}".rjust(128, "x") for i in ids))
    recorder.post(Event(about_pod("default", "a", "u"), WARNING, "Test", aggregate.sentence(), aggregate=aggregate))
    [(_, waits)] = recorder._standby
    assert isinstance(waits.aggregate, DeviceAggregate)
    assert (len(waits.aggregate.device_ids), len(waits.aggregate.reasons), len(waits.message)) == (64, 8, 1024)
    # as many, and the first of them by name
    assert waits.aggregate.sentence()[:60] == aggregate.sentence()[:60]
    assert waits.aggregate.sentence().startswith("4096 devices (gpu-0000, ")
