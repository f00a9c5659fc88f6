"""Events about devices that change together: gathered for a moment, and posted as one."""

import asyncio

import pytest
from nodedevice_operator.observability.aggregates import CORDONED, DeviceAggregate
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, about_pod

from tests.fakes.operator.collaborators import running
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.observability.recording import Recorder, advertises, tallied

pytestmark = virtual_time


async def test_a_hundred_devices_are_one_event_for_each_node() -> None:
    recorder = Recorder()
    for number in range(100):
        for node in ("node-a", "node-b"):
            recorder.post(tallied("DeviceUnhealthy", f"gpu-{number:02}", node=node))
    named = "100 devices (gpu-00, gpu-01, gpu-02, gpu-03, gpu-04 and 95 more) of example.com/gpu"
    assert await recorder.posted() == [f"{named} on {node} unhealthy (Xid)" for node in ("node-a", "node-b")]


async def test_devices_that_break_one_by_one_within_a_second_are_one_event() -> None:
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


BREAKS, RECOVERS = ("DeviceUnhealthy", "unhealthy (Xid)"), ("DeviceRecovered", "healthy again")
News = list[tuple[tuple[str, str], str | int]]


@pytest.mark.parametrize(
    ("news", "wanted"),
    [
        pytest.param(
            [(BREAKS, "0"), (RECOVERS, "0"), (BREAKS, "0")],
            [(BREAKS, "1 device (0)"), (RECOVERS, "1 device (0)"), (BREAKS, "1 device (0)")],
            id="breaks, recovers and breaks",
        ),
        pytest.param(
            [(BREAKS, "3"), (RECOVERS, "3"), (BREAKS, "0")],
            [(BREAKS, "1 device (3)"), (RECOVERS, "1 device (3)"), (BREAKS, "1 device (0)")],
            id="recovers before another breaks",
        ),
        pytest.param(
            [(BREAKS, "0"), (RECOVERS, "9"), (BREAKS, "1"), (RECOVERS, "8")],
            [(BREAKS, "2 devices (0, 1)"), (RECOVERS, "2 devices (8, 9)")],
            id="others are gathered on",
        ),
        pytest.param(
            [(BREAKS, "0"), (RECOVERS, 5), (BREAKS, 7)],
            [(BREAKS, "1 device (0)"), (RECOVERS, "5 devices"), (BREAKS, "7 devices")],
            id="those only counted may be any",
        ),
    ],
)
async def test_the_last_event_about_a_device_shows_its_last_state(news: News, wanted: News) -> None:
    recorder = Recorder()
    for (reason, _), which in news:
        recorder.post(tallied(reason, which) if isinstance(which, str) else tallied(reason, unnamed=which))
        await asyncio.sleep(0.1)
    messages = await recorder.posted()
    repeated = [write.removeprefix("again ").removesuffix(" 2") for write in recorder.cluster.writes]
    assert messages + repeated == [f"{which} of example.com/gpu on node-a {is_now}" for (_, is_now), which in wanted]


async def test_resources_of_one_pod_are_reported_apart() -> None:
    recorder = Recorder()
    for resource in ("example.com/gpu", "example.com/nic"):
        tally = DeviceAggregate(resource, "node-a", frozenset({"0"}), frozenset({"Overheated"}), of_pod=True)
        about = about_pod("default", "pod-a", "uid-a")
        recorder.post(Event(about, WARNING, "DeviceUnhealthy", tally.sentence(), aggregate=tally))
    await recorder.posted()
    found = [posted.aggregate.resource for posted in recorder.cluster.events if posted.aggregate]
    assert found == ["example.com/gpu", "example.com/nic"]


@pytest.mark.parametrize(
    ("numbers", "wanted"),
    [
        pytest.param([(None, 4), (4, 8)], ["8 devices advertised"], id="first, and then more"),
        pytest.param([(8, 7), (7, 6), (6, 5)], ["5 devices advertised, 8 before"], id="one after the other"),
        pytest.param([(8, 7), (7, 8)], [], id="there and back"),
        pytest.param([(None, 8), (8, None)], [], id="come and gone"),
    ],
)
async def test_numbers_that_change_within_seconds_are_one_event(
    numbers: list[tuple[int | None, int | None]], wanted: list[str]
) -> None:
    recorder = Recorder()
    for before, after in numbers:
        recorder.post(advertises(before, after))
        await asyncio.sleep(1)
    assert await recorder.posted() == [f"example.com/gpu on node-a: {each}" for each in wanted]


async def test_a_fleet_that_changes_as_a_whole_is_a_few_events() -> None:
    recorder = Recorder()
    for number in range(5000):
        recorder.post(advertises(None, 8, f"node-{number}"))
    recorder.post(tallied("DeviceUnhealthy", "0"))
    messages = await recorder.posted(70)
    assert messages[0] == "1 device (0) of example.com/gpu on node-a unhealthy (Xid)"
    assert all(text.endswith(": 8 devices advertised") for text in messages[1:51])
    [summed] = recorder.sums()
    assert summed.message == messages[51]
    assert "on 4950 more nodes" in summed.message
    assert recorder.lost() == 0


async def test_cordons_set_one_by_one_are_one_event() -> None:
    recorder = Recorder()
    for number in range(8):
        ids, by = frozenset({f"gpu-{number}"}), frozenset([["alice"], ["bob"], []][number % 3])
        tally = DeviceAggregate("example.com/gpu", "node-a", ids, became=CORDONED, by=by)
        about = About("nodedevice.io/v1alpha1", "NodeDevice", "", "node-a.example.com.gpu", "uid")
        recorder.post(Event(about, NORMAL, "DevicesCordoned", tally.sentence(), aggregate=tally))
    named = "8 devices (gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more) of example.com/gpu"
    assert await recorder.posted() == [f"{named} on node-a cordoned by alice, bob"]
