"""Events are posted, or lost and counted; never in the way."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NoAnswer,
    NotFound,
    NotLeading,
    Unreachable,
)
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.unwatched import PodRecord

from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.observability.recording import Recorder, event, tallied

pytestmark = virtual_time
AWAY = Unreachable("post", "events", "away")
SLOW = NoAnswer("post", "events", "no response", 4.0)
FORBIDDEN = Forbidden("post", "events", "no role is known yet", 403)


@pytest.mark.parametrize(
    ("call", "failures", "posted", "lost"),
    [
        pytest.param("post_event", [AWAY] * 9 + [FORBIDDEN], ["a", "b"], 0, id="an outage is waited for"),
        pytest.param("read_pod", [AWAY] * 9 + [FORBIDDEN], ["a", "b"], 0, id="before the pod is read, too"),
        pytest.param("post_event", [FORBIDDEN, SLOW, AWAY, SLOW, SLOW], ["b"], 1, id="not without end"),
        pytest.param("post_event", [Invalid("post", "events", "no", 422)], ["b"], 1, id="a refusal is final"),
        pytest.param("post_event", [Conflict("post", "events", "exists", 409)], ["b"], 0, id="it had arrived"),
    ],
)
async def test_an_event_that_cannot_be_posted(
    call: str, failures: list[ApiError], posted: list[str], lost: int
) -> None:
    recorder = Recorder()
    recorder.cluster.pods["default", "pod-a"] = PodRecord("uid-a", "node-a")
    recorder.cluster.failures[call] = failures
    for message in "ab":
        recorder.post(event(message, on_node="node-a"))
    assert await recorder.posted(100) == posted
    assert recorder.lost() == lost


@pytest.mark.parametrize(
    ("pod", "is_posted"),
    [
        (PodRecord("uid-a", "node-a"), True),
        (PodRecord("uid-a", "node-b"), False),
        (PodRecord("uid-b", "node-a"), False),
        (None, False),
    ],
)
async def test_an_agent_is_not_trusted_about_its_pods(pod: PodRecord | None, is_posted: bool) -> None:
    recorder = Recorder()
    if pod is not None:
        recorder.cluster.pods["default", "pod-a"] = pod
    recorder.post(event("a", on_node="node-a"))
    assert await recorder.posted() == (["a"] if is_posted else [])


async def test_names_keep_the_order_of_the_reports() -> None:
    """An Event's time has whole seconds, and kubectl lists those of one second by name."""
    recorder = Recorder()
    for number in range(8):
        recorder.post(event(f"message {number}"))
    assert len(await recorder.posted()) == 8
    assert recorder.cluster.event_names == sorted(recorder.cluster.event_names)


async def test_the_same_event_again_raises_its_count_while_it_exists() -> None:
    recorder = Recorder()
    for message in ("a", "b", "a", "a"):
        recorder.post(event(message))
    assert await recorder.posted() == ["a", "b"]
    assert recorder.cluster.writes == ["again a 2", "again a 3"]
    # somebody deleted it
    recorder.cluster.failures["repeat_event"] = [NotFound("patch", "events", "gone", 404)]
    recorder.post(event("a"))
    assert await recorder.posted() == ["a", "b", "a"]


async def test_an_ongoing_state_is_reported_once_whichever_process_does() -> None:
    recorder = Recorder()
    standing = [replace(event(message), is_ongoing=True) for message in ("a", "b", "a")]
    for one in standing:
        recorder.post(one)
    assert await recorder.posted() == ["a", "b"]
    assert recorder.lost() == 0
    after = Recorder(recorder.cluster)
    after.post(standing[0])
    after.post(event("c"))
    assert await after.posted() == ["a", "b", "c"]
    assert recorder.cluster.writes == []


async def test_a_standby_posts_when_it_leads_the_events_of_the_time_without_a_leader() -> None:
    fence = WriteFence(asyncio.get_running_loop().time)
    standby = Recorder(fence=fence)
    standby.post(event("under the leader before"))
    await standby.posted(10)
    since = fence.clock()
    standby.post(event("since it is gone"))
    assert await standby.posted(10) == []
    fence.open_for_good()
    # that very moment counts
    standby.take_over(since)
    assert await standby.posted() == ["since it is gone"]
    standby.take_over(0.0)
    assert await standby.posted() == ["since it is gone"]


@pytest.mark.parametrize("another_led", [False, True])
async def test_an_event_of_a_time_without_the_lead_is_posted_later_unless_another_one_led(another_led: bool) -> None:
    clock = asyncio.get_running_loop().time
    recorder = Recorder(fence=(fence := WriteFence(clock)))
    # as after a process was stopped for some seconds
    recorder.cluster.failures["post_event"] = [NotLeading("post", "events", "its time as leader is over")]
    recorder.cluster.failures["read_pod"] = [AWAY] * 5
    recorder.cluster.pods["default", "pod-a"] = PodRecord("uid-a", "node-a")
    fence.open_until(clock() + 0.5)
    unhealthy, healthy = (tallied(reason, "gpu-0") for reason in ("DeviceUnhealthy", "DeviceRecovered"))
    recorder.post(event("in the queue", on_node="node-a"))
    recorder.post(unhealthy)
    await asyncio.sleep(0.6)
    since = clock()
    recorder.post(event("on standby"))
    recorder.post(healthy)
    assert await recorder.posted(5) == []
    fence.open_for_good()
    recorder.take_over(clock() if another_led else since)
    # each device's last state last
    wanted = [] if another_led else ["in the queue", unhealthy.message, "on standby", healthy.message]
    assert await recorder.posted() == wanted
    recorder.take_over(0.0)
    assert await recorder.posted() == wanted
    assert recorder.lost() == 0
