"""Events are posted, or lost and counted; never in the way."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_kube.api_errors import Conflict, Forbidden, Invalid, NotFound, NotLeading, Unreachable
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.unwatched import PodRecord

from tests.fakes.operator.collaborators import running
from tests.unit.operator.observability.recording import Recorder, event, tallied, until


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
