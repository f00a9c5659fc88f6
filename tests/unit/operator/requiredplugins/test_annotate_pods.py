"""Who has to be marked before a resource is advertised, and what holds its capacity back meanwhile."""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from nodedevice_api import names
from nodedevice_kube.api_errors import (
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.pending_pods import advertised, to_annotate

from tests.fakes.operator.collaborators import Clock
from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.unit.operator.requiredplugins.bench import advertised_as


def pending(name: str, *resources: str, marks: str = "", **more: Any) -> PodRecord:
    annotations = {"required-plugins.noderesource.dev": marks} if marks else {}
    asked = frozenset(resources)
    return PodRecord(f"uid-{name}", "", namespace="a", name=name, asks_for=asked, annotations=annotations, **more)


PODS = [pending(f"pod-{number}", GPU) for number in range(3)]
OTHER = pending("other", NIC)


@pytest.mark.parametrize(
    ("pod", "is_due"),
    [
        pytest.param(pending("a", GPU), True, id="asks for it"),
        pytest.param(pending("a", GPU, NIC, "cpu"), True, id="and for more"),
        pytest.param(pending("a", NIC, "cpu"), False, id="asks for others"),
        pytest.param(pending("a", GPU, is_ending=True), False, id="is over"),
        pytest.param(pending("a", GPU, marks="[ nodedevice ]"), False, id="marked"),
        pytest.param(pending("a", GPU, marks=f"[ nodedevice, {'a' * 1024} ]"), True, id="too long for a row of pods"),
    ],
)
def test_to_annotate(pod: PodRecord, is_due: bool) -> None:
    assert to_annotate([pod], frozenset({GPU})) == ((pod,) if is_due else ())


@pytest.mark.parametrize(
    ("delivery", "status", "reason", "is_so"),
    [
        ("nri", "True", names.Reason.ADVERTISED, True),
        ("nri", "False", names.Reason.POLICY_PENDING, False),
        ("nri", "True", names.Reason.BY_KUBELET, False),
        ("kubelet", "True", names.Reason.ADVERTISED, False),
    ],
)
def test_advertised(delivery: str, status: str, reason: str, is_so: bool) -> None:
    record = replace(advertised_as(status, reason), delivery=delivery)
    assert advertised([record, node_device(NIC, delivery="nri")]) == ({GPU} if is_so else set())


class Pods(UnboundPodsApi):
    """Pods in memory, a page each. hides: what each listing fails with; refuses: what the patch of pod-1 does.

    marks: whether the policy is in force; also: what the patches of other pods fail with.
    """

    def __init__(
        self,
        hides: ApiError | None = None,
        refuses: ApiError | None = None,
        *,
        marks: bool = True,
        also: dict[str, ApiError] | None = None,
    ) -> None:
        self.hides, self.marks = hides, marks
        self.refuses = {**(also or {}), **({PODS[1].name: refuses} if refuses else {})}
        self.lists = 0
        self.patched: list[str] = []

    async def pages(self) -> AsyncIterator[list[PodRecord]]:
        self.lists += 1
        if self.hides is not None:
            raise self.hides
        for pod in (*PODS, OTHER):
            yield [pod]

    async def admit_again(self, pod: PodRecord) -> bool:
        self.patched.append(pod.name)
        if pod.name in self.refuses:
            raise self.refuses[pod.name]
        return self.marks


def reported(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_each_pod_is_patched_once_and_the_name_is_done(caplog: pytest.LogCaptureFixture) -> None:
    pods = Pods()
    waiting = PodAnnotator(pods, is_on=True)
    assert waiting.lacks(GPU)
    for _ in range(2):
        assert await waiting.annotate([GPU], []) is None
    assert not waiting.lacks(GPU)
    assert waiting.lacks(NIC)
    assert (pods.lists, sorted(pods.patched)) == (1, ["pod-0", "pod-1", "pod-2"])
    assert reported(caplog) == []


async def test_what_is_advertised_is_done_unless_the_policy_lost_it() -> None:
    pods = Pods()
    waiting = PodAnnotator(pods, is_on=True)
    assert await waiting.annotate([GPU], [GPU]) is None
    assert (waiting.lacks(GPU), pods.lists) == (False, 0)
    waiting.added([GPU])
    assert waiting.lacks(GPU)
    await waiting.annotate([GPU], [GPU])
    assert (waiting.lacks(GPU), pods.lists) == (False, 1)
    waiting.keep_only([])
    await waiting.annotate([GPU], [GPU])
    assert (waiting.lacks(GPU), pods.lists) == (False, 1)


async def test_a_name_that_goes_and_comes_again_is_checked_for_without_earlier_trouble() -> None:
    pods = Pods(hides=Unavailable("GET", "pods", "busy", 429, retry_after_seconds=60.0))
    waiting = PodAnnotator(pods, is_on=True, clock=Clock())
    assert await waiting.annotate([GPU], []) == 60.0
    waiting.keep_only([])
    pods.hides = None
    assert await waiting.annotate([GPU], []) is None
    waiting.keep_only([])
    await waiting.annotate([GPU], [])
    assert pods.lists == 3


async def test_nothing_is_asked_where_it_is_off() -> None:
    pods = Pods()
    waiting = PodAnnotator(pods, is_on=False)
    assert not waiting.lacks(GPU)
    waiting.added([GPU])
    assert await waiting.annotate([GPU], []) is None
    assert pods.lists == 0


@pytest.mark.parametrize(
    ("pods", "level", "patched"),
    [
        pytest.param(Pods(refuses=NotFound("PATCH", "pods", "no", 404)), "", 3, id="a pod is gone"),
        pytest.param(Pods(refuses=Conflict("PATCH", "pods", "no", 409)), "", 3, id="another pod has its name"),
        pytest.param(Pods(refuses=Denied("PATCH", "pods", "no", 403)), "WARNING", 3, id="a policy refuses one"),
        pytest.param(Pods(refuses=Invalid("PATCH", "pods", "no", 422)), "WARNING", 3, id="one is invalid"),
        pytest.param(Pods(hides=Forbidden("GET", "pods", "no", 403)), "ERROR", 0, id="a missing right"),
    ],
)
async def test_what_a_retry_does_not_change_is_reported_once_and_holds_nothing_back(
    pods: Pods, level: str, patched: int, caplog: pytest.LogCaptureFixture
) -> None:
    waiting = PodAnnotator(pods, is_on=True)
    for _ in range(2):
        assert await waiting.annotate([GPU], []) is None
    assert not waiting.lacks(GPU)
    assert len(pods.patched) == patched
    assert [line.levelname for line in reported(caplog)] == ([level] if level else [])
    for line in reported(caplog):
        fields = line.__dict__
        assert (fields["pods"], fields["pod"]) == (1, "pod-1") if patched else fields["resource_names"] == [GPU]
        assert fields["error"].endswith("no")
        assert "docs/security.md" in fields["remedy"]


@pytest.mark.parametrize(
    "passing", [Unavailable("PATCH", "pods", "odd", 500), Forbidden("PATCH", "pods", "token", 401)]
)
async def test_what_may_pass_is_retried_beside_a_refusal(passing: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pods = Pods(refuses=passing, also={"pod-0": Forbidden("PATCH", "pods", "the webhook denied it", 403)})
    waiting = PodAnnotator(pods, is_on=True, clock=clock)
    pause = await waiting.annotate([GPU], [])
    assert pause is not None
    assert waiting.lacks(GPU)
    assert reported(caplog) == []
    del pods.refuses["pod-1"]
    clock.now += pause
    assert await waiting.annotate([GPU], []) is None
    assert pods.patched.count("pod-1") == 2
    (line,) = reported(caplog)
    assert (line.__dict__["pods"], line.__dict__["pod"]) == (1, "pod-0")


async def seconds_held_back(waiting: PodAnnotator, clock: Clock, most: float) -> float:
    """How long the name is held back, up to about `most` seconds."""
    began = clock.now
    while (pause := await waiting.annotate([GPU], [])) is not None and clock.now - began < most:
        # who asks too early is reported to wait, and nothing is sent
        assert await waiting.annotate([GPU], []) == pytest.approx(pause)
        clock.now += pause
    return clock.now - began


@pytest.mark.parametrize(
    ("pods", "level", "problem"),
    [
        pytest.param(Pods(hides=Unavailable("GET", "pods", "away", 500)), "ERROR", "away", id="pods are not listed"),
        pytest.param(Pods(hides=Invalid("GET", "pods", "too old", 410)), "ERROR", "too old", id="a list is cut off"),
        pytest.param(Pods(refuses=Unavailable("PATCH", "pods", "away", 500)), "WARNING", "away", id="a webhook"),
        pytest.param(Pods(refuses=Unreachable("PATCH", "pods", "too slow")), "WARNING", "too slow", id="a slow one"),
        pytest.param(Pods(marks=False), "WARNING", "did not change it", id="not marked"),
    ],
)
async def test_passing_trouble_holds_a_name_back_for_a_while(
    pods: Pods, level: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    waiting = PodAnnotator(pods, is_on=True, clock=clock)
    assert 20 < await seconds_held_back(waiting, clock, 1000) < 60
    assert not waiting.lacks(GPU)
    (line,) = reported(caplog)
    assert line.levelname == level
    assert problem in line.__dict__["error"]


async def test_a_name_is_held_back_by_its_own_pods_only() -> None:
    waiting = PodAnnotator(Pods(refuses=Unavailable("PATCH", "pods", "webhook away", 500)), is_on=True)
    assert await waiting.annotate([GPU, NIC], []) is not None
    assert (waiting.lacks(GPU), waiting.lacks(NIC)) == (True, False)


async def test_a_name_that_is_new_is_not_given_up_for_what_another_went_through() -> None:
    clock = Clock()
    waiting = PodAnnotator(Pods(hides=Unavailable("GET", "pods", "webhook away", 500)), is_on=True, clock=clock)
    for _ in range(5):
        await waiting.annotate([GPU], [])
        clock.now += 15
    assert waiting.lacks(GPU)
    # nor does it wait as long
    assert await waiting.annotate([GPU, NIC], []) == 1.0
    assert (waiting.lacks(GPU), waiting.lacks(NIC)) == (False, True)


async def test_an_unreachable_api_server_holds_it_back_until_it_is_there(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    pods = Pods(hides=Unreachable("GET", "pods", "nobody there"))
    waiting = PodAnnotator(pods, is_on=True, clock=clock)
    assert await seconds_held_back(waiting, clock, 300) >= 300
    pods.hides = None
    clock.now += 60
    assert await waiting.annotate([GPU], []) is None
    assert len(pods.patched) == 3
    assert reported(caplog) == []


async def test_what_is_done_by_then_is_done_when_the_lead_is_lost() -> None:
    class Slow(Pods):
        async def admit_again(self, pod: PodRecord) -> bool:
            for _ in range(0 if pod.name == PODS[0].name else 5):
                await asyncio.sleep(0)
            return await super().admit_again(pod)

    pods = Slow(also={PODS[0].name: NotLeading("PATCH", "pods", "another leads")})
    waiting = PodAnnotator(pods, is_on=True)
    with pytest.raises(NotLeading):
        await waiting.annotate([GPU], [])
    assert waiting.lacks(GPU)
    assert sorted(pods.patched) == ["pod-0", "pod-1", "pod-2"]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_pods_carry_is_not_kept_while_they_are_listed() -> None:
    """Annotations are 256 KiB at most, of each pod, and a tenant may make many."""

    class Full(Pods):
        async def pages(self) -> AsyncIterator[list[PodRecord]]:
            async for page in super().pages():
                yield [replace(pod, annotations={"example.com/note": "x" * 999}) for pod in page]

        async def admit_again(self, pod: PodRecord) -> bool:
            assert pod == replace(pod, annotations={})
            return await super().admit_again(pod)

    pods = Full()
    assert await PodAnnotator(pods, is_on=True).annotate([GPU], []) is None
    assert len(pods.patched) == 3
