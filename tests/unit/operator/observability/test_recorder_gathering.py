"""Events about devices that change together: gathered for a moment, and posted as one."""

import asyncio

import pytest
from nodedevice_operator.observability import recorder as module
from nodedevice_operator.observability.aggregates import CORDONED, DeviceAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.observability.recording import Recorder, advertises, tallied, until


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
