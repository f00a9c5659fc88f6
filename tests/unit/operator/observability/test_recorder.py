"""Events are posted, or lost and counted; never in the way."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from itertools import count

import pytest
from nodedevice_operator.errors import Conflict, Forbidden, Invalid, NotFound, NotLeading, Unreachable
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.observability import recorder as module
from nodedevice_operator.observability.aggregates import (
    CORDONED,
    HEALTHY_AGAIN,
    UNHEALTHY,
    DeviceAggregate,
    NumberAggregate,
)
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod, advertised
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder

from tests.fakes.log_lines import log_lines
from tests.fakes.operator.cluster_model import ClusterModel
from tests.fakes.operator.collaborators import Clock, open_fence, running
from tests.fakes.virtual_time import virtual_time


def event(message: str, on_node: str | None = None) -> Event:
    return Event(about_pod("default", "pod-a", "uid-a"), NORMAL, "Test", message, on_node)


_numbers = count()


class Recorder(EventRecorder):
    """A recorder whose clock stands still, the cluster that it posts to, and what came of it."""

    def __init__(
        self,
        cluster: ClusterModel | None = None,
        fence: WriteFence | None = None,
    ) -> None:
        self.cluster = cluster or ClusterModel()
        self.metrics = Metrics()
        super().__init__(self.cluster, self.metrics, fence or open_fence(), Clock())

    async def posted(self) -> list[str]:
        """Messages posted before a last one, for which is waited; without that one, and those of earlier calls."""
        last = f"last {next(_numbers)}"
        self.post(event(last))
        await until(lambda: bool(self.cluster.events) and self.cluster.events[-1].message == last)
        return [found.message for found in self.cluster.events if not found.message.startswith("last ")]

    def lost(self) -> float | None:
        return self.metrics.registry.get_sample_value("nodedevice_operator_events_lost_total")


@pytest.fixture
async def recorder(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    """One that retries at once, and waits for nothing to gather."""
    monkeypatch.setattr(module, "wait_exponential", lambda **_: lambda _: 0.0)
    monkeypatch.setattr(module, "_GATHER_SECONDS", 0.0)
    made = Recorder()
    async with running(made.work()):
        yield made


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)


async def test_an_outage_is_waited_for_and_a_refusal_is_not(recorder: Recorder) -> None:
    refused = Invalid("post", "events", "no", 422)
    forbidden = Forbidden("post", "events", "no role is known yet", 403)
    arrived = Conflict("post", "events", "already exists", 409)
    away = Unreachable("post", "events", "away")
    recorder.cluster.failures["post_event"] = [away, forbidden]
    recorder.post(event("a"))
    assert await recorder.posted() == ["a"]
    recorder.cluster.events.clear()
    recorder.cluster.failures["post_event"] = [refused, arrived]
    recorder.post(event("b"))
    recorder.post(event("c"))
    assert await recorder.posted() == []
    assert recorder.lost() == 1


async def test_what_never_gets_through_is_lost(recorder: Recorder) -> None:
    recorder.cluster.failures["post_event"] = [Unreachable("post", "events", "away")] * 4
    recorder.post(event("a"))
    assert await recorder.posted() == []
    assert recorder.lost() == 1


@pytest.mark.parametrize(
    ("pod", "is_posted"),
    [
        (PodRecord("uid-a", "node-a"), True),
        (PodRecord("uid-a", "node-b"), False),
        (PodRecord("uid-b", "node-a"), False),
        (None, False),
    ],
)
async def test_an_agent_is_not_believed_which_pods_it_has(
    recorder: Recorder, pod: PodRecord | None, is_posted: bool
) -> None:
    if pod is not None:
        recorder.cluster.pods["default", "pod-a"] = pod
    recorder.post(event("a", on_node="node-a"))
    assert await recorder.posted() == (["a"] if is_posted else [])


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
async def test_the_rates_of_no_more_nodes_are_remembered_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_NODES", 2)
    waiting = Recorder()
    for node in ("mad", "a", "mad", "b", "mad", "c"):
        waiting.post(Event(About("v1", "NodeDevice", "", "o", "u", node), WARNING, "Broken", node))
    assert list(waiting._of_nodes) == ["mad", "c"]


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


async def test_names_keep_the_order_in_which_it_was_reported(recorder: Recorder) -> None:
    """An Event's time has whole seconds, and kubectl lists those of one second by name."""
    for number in range(8):
        recorder.post(event(f"message {number}"))
    assert len(await recorder.posted()) == 8
    assert recorder.cluster.event_names == sorted(recorder.cluster.event_names)


async def test_the_same_again_is_counted_on(recorder: Recorder) -> None:
    for message in ("a", "b", "a", "a"):
        recorder.post(event(message))
    assert await recorder.posted() == ["a", "b"]
    assert recorder.cluster.writes == ["again a 2", "again a 3"]


async def test_what_goes_on_is_named_after_what_it_reports_and_reported_once(recorder: Recorder) -> None:
    standing = [replace(event(message), is_ongoing=True) for message in ("a", "b", "a")]
    for one in standing:
        recorder.post(one)
    assert await recorder.posted() == ["a", "b"]
    assert recorder.lost() == 0
    recorder.cluster.events.clear()
    # another process
    after = Recorder(recorder.cluster)
    async with running(after.work()):
        after.post(standing[0])
        after.post(event("c"))
        assert await after.posted() == ["c"]
    assert recorder.cluster.writes == []


async def test_one_that_is_no_longer_there_is_posted_again(recorder: Recorder) -> None:
    recorder.cluster.failures["repeat_event"] = [NotFound("patch", "events", "gone", 404)]
    for _ in range(3):
        recorder.post(event("a"))
    assert await recorder.posted() == ["a", "a"]
    assert recorder.cluster.writes == ["again a 2"]


def tallied(reason: str, *device_ids: str, unnamed: int = 0, node: str = "node-a") -> Event:
    is_recovery = reason == "DeviceRecovered"
    why = frozenset[str]() if is_recovery else frozenset({"Xid"})
    ids = frozenset(device_ids)
    became = HEALTHY_AGAIN if is_recovery else UNHEALTHY
    tally = DeviceAggregate("example.com/gpu", node, ids, why, unnamed=unnamed, became=became)
    about = About("nodedevice.io/v1alpha1", "NodeDevice", "", f"{node}.example.com.gpu", node)
    return Event(about, NORMAL if is_recovery else WARNING, reason, tally.sentence(), aggregate=tally)


async def test_a_hundred_devices_are_one_event_for_each_node(recorder: Recorder) -> None:
    for number in range(100):
        for node in ("node-a", "node-b"):
            recorder.post(tallied("DeviceUnhealthy", f"gpu-{number:02}", node=node))
    await until(lambda: len(recorder.cluster.events) == 2)
    named = "100 devices (gpu-00, gpu-01, gpu-02, gpu-03, gpu-04 and 95 more) of example.com/gpu"
    wanted = [f"{named} on {node} unhealthy (Xid)" for node in ("node-a", "node-b")]
    assert [found.message for found in recorder.cluster.events] == wanted
    assert await recorder.posted() == wanted


@virtual_time
async def test_what_breaks_one_by_one_within_a_second_is_one_event() -> None:
    made = Recorder()

    async def messages_after(seconds: float) -> list[str]:
        await asyncio.sleep(seconds)
        return [found.message for found in made.cluster.events]

    async with running(made.work()):
        for number in range(3):
            assert await messages_after(0.4 if number else 0.0) == []
            made.post(tallied("DeviceUnhealthy", f"gpu-{number}"))
        # those that come later do not put it off
        wanted = ["3 devices (gpu-0, gpu-1, gpu-2) of example.com/gpu on node-a unhealthy (Xid)"]
        assert await messages_after(0.25) == wanted
        made.post(tallied("DeviceUnhealthy", "gpu-3"))
        assert await messages_after(0.9) == wanted
        assert len(await messages_after(0.2)) == 2


@pytest.mark.parametrize(
    ("news", "wanted"),
    [
        pytest.param(
            [("DeviceUnhealthy", "0"), ("DeviceRecovered", "0"), ("DeviceUnhealthy", "0")],
            ["1 device (0) {} unhealthy (Xid)", "1 device (0) {} healthy again", "1 device (0) {} unhealthy (Xid)"],
            id="breaks, recovers and breaks",
        ),
        pytest.param(
            [("DeviceUnhealthy", "3"), ("DeviceRecovered", "3"), ("DeviceUnhealthy", "0")],
            ["1 device (3) {} unhealthy (Xid)", "1 device (3) {} healthy again", "1 device (0) {} unhealthy (Xid)"],
            id="recovers before another breaks",
        ),
        pytest.param(
            [("DeviceUnhealthy", "0"), ("DeviceRecovered", "9"), ("DeviceUnhealthy", "1"), ("DeviceRecovered", "8")],
            ["2 devices (0, 1) {} unhealthy (Xid)", "2 devices (8, 9) {} healthy again"],
            id="others are gathered on",
        ),
        pytest.param(
            [("DeviceUnhealthy", "0"), ("DeviceRecovered", 5), ("DeviceUnhealthy", 7)],
            ["1 device (0) {} unhealthy (Xid)", "5 devices {} healthy again", "7 devices {} unhealthy (Xid)"],
            id="those only counted may be any",
        ),
    ],
)
async def test_what_is_reported_last_of_a_device_is_what_became_of_it_last(
    recorder: Recorder,
    news: list[tuple[str, str | int]],
    wanted: list[str],
) -> None:
    for reason, which in news:
        recorder.post(tallied(reason, which) if isinstance(which, str) else tallied(reason, unnamed=which))
    await until(lambda: len(recorder.cluster.events) + len(recorder.cluster.writes) >= len(wanted))
    repeated = [write.removeprefix("again ").removesuffix(" 2") for write in recorder.cluster.writes]
    reported = [found.message for found in recorder.cluster.events] + repeated
    assert reported == [sentence.format("of example.com/gpu on node-a") for sentence in wanted]


async def test_resources_of_one_pod_are_reported_apart(recorder: Recorder) -> None:
    for resource in ("example.com/gpu", "example.com/nic"):
        tally = DeviceAggregate(resource, "node-a", frozenset({"0"}), frozenset({"Overheated"}), of_pod=True)
        about = about_pod("default", "pod-a", "uid-a")
        recorder.post(Event(about, WARNING, "DeviceUnhealthy", tally.sentence(), aggregate=tally))
    await until(lambda: len(recorder.cluster.events) == 2)
    found = [posted.aggregate.resource for posted in recorder.cluster.events if posted.aggregate]
    assert found == ["example.com/gpu", "example.com/nic"]


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


async def test_a_standby_posts_when_it_leads_what_came_up_while_nobody_did() -> None:
    now = [10.0]
    standby = Recorder(fence=(fence := WriteFence(lambda: now[0])))
    async with running(standby.work()):
        for message in ("under the leader before", "since it is gone"):
            standby.post(event(message))
            await asyncio.sleep(0)
            now[0] += 10.0
        assert standby.cluster.events == []
        fence.open_for_good()
        # that very moment counts
        standby.take_over(20.0)
        assert await standby.posted() == ["since it is gone"]
        standby.take_over(0.0)
        assert await standby.posted() == ["since it is gone"]


@pytest.mark.parametrize(("nobody_since", "is_posted"), [(14.0, True), (20.0, False)], ids=["nobody", "another one"])
async def test_what_was_due_when_it_did_not_lead_is_posted_later_unless_another_one_led(
    recorder: Recorder, nobody_since: float, is_posted: bool
) -> None:
    now = [10.0]
    recorder._fence = fence = WriteFence(lambda: now[0])
    recorder.cluster.failures["post_event"] = [NotLeading("post", "events", "its time as leader is over")] * 2
    fence.open_until(13.0)
    unhealthy, healthy = (tallied(reason, "gpu-0") for reason in ("DeviceUnhealthy", "DeviceRecovered"))
    recorder.post(event("in the queue"))
    recorder.post(unhealthy)
    # as after a process was stopped for some seconds
    now[0] = 14.0
    recorder.post(healthy)
    await until(lambda: not recorder.cluster.failures["post_event"])
    fence.open_for_good()
    recorder.take_over(nobody_since)
    await until(lambda: not recorder._gathering)
    # each device's last state last
    wanted = ["in the queue", unhealthy.message, healthy.message]
    assert await recorder.posted() == (wanted if is_posted else [])
    recorder.take_over(0.0)
    assert await recorder.posted() == (wanted if is_posted else [])
    assert recorder.lost() == 0


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


def advertises(before: int | None, after: int | None, node: str = "node-a") -> Event:
    about = About("nodedevice.io/v1alpha1", "NodeDevice", "", f"{node}.example.com.gpu", node)
    return advertised(about, NumberAggregate("example.com/gpu", node, before, after))


@pytest.fixture
async def at_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """One that waits for no more numbers either."""
    monkeypatch.setattr(module, "_GATHER_NUMBERS_SECONDS", 0.0)
    monkeypatch.setattr(module, "_COUNT_SECONDS", 0.0)
    return recorder


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        pytest.param([(None, 4), (4, 8)], "8 devices advertised", id="first, and then more"),
        pytest.param([(8, 7), (7, 6), (6, 5)], "5 devices advertised, 8 before", id="one after the other"),
        pytest.param([(8, 7), (7, 8)], None, id="there and back"),
        pytest.param([(None, 8), (8, None)], None, id="come and gone"),
    ],
)
async def test_numbers_that_change_within_seconds_are_one_event(
    at_once: Recorder, numbers: list[tuple[int | None, int | None]], wanted: str | None
) -> None:
    for before, after in numbers:
        at_once.post(advertises(before, after))
    await until(lambda: not at_once._gathering)
    wanted_messages = [] if wanted is None else [f"example.com/gpu on node-a: {wanted}"]
    assert await at_once.posted() == wanted_messages


async def test_a_fleet_that_changes_as_a_whole_is_a_few_events(at_once: Recorder) -> None:
    for number in range(5000):
        at_once.post(advertises(None, 8, f"node-{number}"))
    at_once.post(tallied("DeviceUnhealthy", "0"))
    await until(lambda: not at_once._gathering and not at_once._counted)
    messages = await at_once.posted()
    assert "example.com/gpu on node-0: 8 devices advertised" in messages
    assert "1 device (0) of example.com/gpu on node-a unhealthy (Xid)" in messages
    summed = [message for message in messages if "more node" in message]
    assert len(messages) - len(summed) == module._ROUTINE_BURST + 1
    assert sum(int(message.split(" on ")[1].split()[0]) for message in summed) == 5000 - (
        len(messages) - len(summed) - 1
    )
    assert at_once.lost() == 0


async def test_cordons_set_one_by_one_are_one_event(at_once: Recorder) -> None:
    for number in range(8):
        ids, by = frozenset({f"gpu-{number}"}), frozenset([["alice"], ["bob"], []][number % 3])
        tally = DeviceAggregate("example.com/gpu", "node-a", ids, became=CORDONED, by=by)
        about = About("nodedevice.io/v1alpha1", "NodeDevice", "", "node-a.example.com.gpu", "uid")
        at_once.post(Event(about, NORMAL, "DevicesCordoned", tally.sentence(), aggregate=tally))
    await until(lambda: not at_once._gathering)
    named = "8 devices (gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more) of example.com/gpu"
    assert await at_once.posted() == [f"{named} on node-a cordoned by alice, bob"]
