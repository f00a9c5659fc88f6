"""When the controller of the policy looks again: soon, after a growing pause, with the next poll; and what one round is about."""

import asyncio
from dataclasses import replace

import pytest
from nodedevice_kube.api_errors import NotLeading
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.requiredplugins.pending_pods import AnnotationFailure
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES, Spec, binding_spec, policy_spec

from tests.fakes.operator.operator_model import GPU, NIC, node_device
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.operator.requiredplugins.bench import (
    ADVERTISED,
    RECORD,
    Annotator,
    Bench,
    Objects,
    advertised_as,
    reported,
)

pytestmark = virtual_time

SPARE = "example.com/spare"


async def test_nothing_is_concluded_before_everything_was_read_once() -> None:
    bench = Bench(Objects())
    bench.keeper.cache.pod_devices.is_complete = False
    async with bench:
        await asyncio.sleep(60)
        assert bench.objects.specs == {}
        bench.keeper.cache.pod_devices.is_complete = True
        await asyncio.sleep(1)
        assert bench.objects.specs.keys() == {POLICIES, BINDINGS}


async def test_a_name_that_no_nodedevice_has_any_more_leaves_with_the_next_poll() -> None:
    of_others: list[NodeDeviceRecord] = [node_device(name, delivery="nri") for name in (NIC, SPARE)]
    bench = Bench(Objects(), records=(RECORD, *of_others))
    async with bench:
        await bench.until_written()
        await bench.until_in_force()
        for record, left in zip(of_others, ((GPU, SPARE), (GPU,)), strict=True):
            bench.keeper.cache.node_devices.remove(record.key, record.uid)
            await asyncio.sleep(11)
            assert bench.objects.specs[POLICIES] == policy_spec(left)


async def test_who_does_not_lead_tries_again_and_has_not_failed(caplog: pytest.LogCaptureFixture) -> None:
    class Lost(Objects):
        tried = 0

        async def apply(self, kind: str, spec: Spec) -> Spec:
            self.tried += 1
            if self.tried <= 2:
                raise NotLeading("PATCH", kind, "another operator leads")
            return await super().apply(kind, spec)

    bench = Bench(Lost())
    async with bench:
        await asyncio.sleep(25)
        assert bench.objects.specs.keys() == {POLICIES, BINDINGS}
    assert reported(caplog, "policy cannot be written") == []


async def test_a_refusal_is_reported_once_and_pauses_grow_until_a_write(caplog: pytest.LogCaptureFixture) -> None:
    class Refused(Objects):
        def __init__(self) -> None:
            super().__init__(refuses=True)
            self.at: list[float] = []

        async def apply(self, kind: str, spec: Spec) -> Spec:
            self.at.append(asyncio.get_running_loop().time())
            return await super().apply(kind, spec)

    objects = Refused()
    bench = Bench(objects)
    async with bench:
        await until(lambda: len(objects.at) == 5)
        # what comes within a quarter of a second is one round
        pauses = [after - before for before, after in zip(objects.at, objects.at[1:], strict=False)]
        assert pauses == pytest.approx([1.25, 2.25, 4.25, 8.25])
        bench.settle()
        assert bench.unguarded == {GPU}
        assert len(reported(caplog, "policy cannot be written")) == 1
        objects.refuses = False
        await bench.until_written()
        objects.refuses, count = True, len(objects.at)
        objects.vanish(POLICIES)
        await until(lambda: len(objects.at) == count + 2)
        assert objects.at[-1] - objects.at[-2] == pytest.approx(1.25)
    assert len(reported(caplog, "policy cannot be written")) == 2


async def test_pods_that_could_not_be_annotated_are_tried_again_when_that_is_due() -> None:
    class Busy(Annotator):
        async def _annotate(self, resources: frozenset[str]) -> list[AnnotationFailure]:
            at.append(clock())
            return [AnnotationFailure("busy", resources, is_transient=True)] if len(at) < 3 else []

    clock, at = asyncio.get_running_loop().time, list[float]()
    bench = Bench(Objects())
    bench.keeper.annotator = Busy(is_on=True)
    bench.keeper.clock = bench.keeper.annotator.clock = clock
    async with bench:
        await until(lambda: bench.unguarded == frozenset())
    assert len(at) == 3
    # a second and two, as the pauses of one name grow
    assert at[1] - at[0] < 2
    assert at[2] - at[1] < 3


async def test_records_that_come_in_steps_are_one_round() -> None:
    objects = Objects()
    objects.specs = {POLICIES: policy_spec((GPU, NIC)), BINDINGS: binding_spec()}
    also = node_device(NIC, delivery="nri", conditions=ADVERTISED.conditions)
    waiting = [advertised_as("False", "PolicyPending", node) for node in ("node-b", "node-c")]
    # a step is of a thousand
    others = [node_device(node=f"node-{number}", delivery="kubelet") for number in range(1000)]
    bench = Bench(objects, marks=True, records=(ADVERTISED, waiting[0], *others, also, waiting[1]))
    async with bench:
        await bench.until_in_force()
        await until(lambda: bench.enqueued == {"node-b", "node-c"})
    assert (bench.waiting.checked_for, objects.writes) == ([], 0)


async def test_a_nodedevice_that_somebody_made_by_hand_says_nothing_of_pods() -> None:
    objects = Objects()
    objects.specs = {POLICIES: policy_spec((GPU,)), BINDINGS: binding_spec()}
    bench = Bench(objects, marks=True, records=(replace(ADVERTISED, name="by-hand"), RECORD))
    bench.waiting.may_end.set()
    async with bench:
        await bench.until_in_force()
    assert bench.waiting.checked_for == [{GPU}]
