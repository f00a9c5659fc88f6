"""Whatever happens in whatever order: nothing foreign is forced, nothing of ours is lost, and it ends as it should."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from nodedevice_api.names import Condition
from nodedevice_operator.capacity.decide import desired_count
from nodedevice_operator.objects.meta import OURS
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

from tests.examples import examples
from tests.fakes.operator.node_status import ALLOCATABLE, CAPACITY
from tests.fakes.operator.operator_model import GPU, NIC, OperatorModel, node_device, settle

RESOURCES = st.sampled_from([GPU, NIC])
WRITERS = st.sampled_from(["kubelet", "admin"])
MAPS = st.sampled_from([(CAPACITY, ALLOCATABLE), (CAPACITY,), (ALLOCATABLE,)])
NUMBERS = st.integers(0, 3)


@st.composite
def agent_words(draw: st.DrawFn, resource: str | None = None) -> NodeDeviceRecord:
    """Anything an agent may report of a resource."""
    endpoint = draw(st.sampled_from(["Running", "Stopped", "Gone"]))
    available = draw(NUMBERS) if endpoint != "Gone" else 0
    fields: dict[str, Any] = {"endpoint": endpoint, "available": available, "allocated": draw(NUMBERS)}
    return node_device(resource or draw(RESOURCES), has_status=draw(st.integers(0, 9)) > 0, **fields)


class NodeLife(RuleBasedStateMachine):
    """One Node with agents, a kubelet, an admin, and an operator that is restarted now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.model = OperatorModel()
        self.ours: set[str] = set()
        self.reconciled = False

    @rule(record=agent_words())
    def agent_reports(self, record: NodeDeviceRecord) -> None:
        self.model.publish(record)
        self.reconciled = False

    @rule(resource=RESOURCES)
    def nodedevice_is_deleted(self, resource: str) -> None:
        self.model.node_devices = {n: r for n, r in self.model.node_devices.items() if r.resource != resource}
        self.reconciled = False

    @rule(writer=WRITERS, resource=RESOURCES, number=st.none() | NUMBERS, maps=MAPS)
    def somebody_writes(self, writer: str, resource: str, number: int | None, maps: tuple[str, ...]) -> None:
        self.model.node.update(writer, resource, number, maps)
        self.reconciled = False

    @rule(writer=WRITERS, resource=RESOURCES, number=NUMBERS)
    def somebody_applies_by_force(self, writer: str, resource: str, number: int) -> None:
        self.model.node.apply({resource: number}, force=True, manager=writer)
        self.reconciled = False

    @rule(seconds=st.sampled_from([1.0, 30.0, 90.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.model.now += seconds
        self.reconciled = False

    @rule()
    def operator_restarts(self) -> None:
        self.model.restart()
        self.reconciled = False

    @rule()
    def operator_reconciles(self) -> None:
        before = {name: self.model.node.seen(name) for name in (GPU, NIC)}
        first = len(self.model.applies)
        self.model.reconcile()
        for apply in self.model.applies[first:]:
            foreign = {
                name
                for name in apply.numbers
                if name not in self.ours and before[name].is_present and OURS not in before[name].capacity_owners
            }
            assert not (apply.is_forced and foreign), f"forced {foreign}, which were never ours"
            self.ours |= apply.numbers.keys()
        self.reconciled = True

    @precondition(lambda self: self.reconciled)
    @invariant()
    def a_second_reconcile_does_nothing(self) -> None:
        applies, events = len(self.model.applies), len(self.model.events)
        self.model.reconcile()
        assert (len(self.model.applies), len(self.model.events)) == (applies, events)

    @precondition(lambda self: self.reconciled)
    @invariant()
    def what_is_advertised_is_on_the_node(self) -> None:
        for record in self.model.node_devices.values():
            seen = self.model.node.seen(record.resource)
            if record.has_status and record.is_condition(Condition.ADVERTISED, "True"):
                assert (seen.capacity, seen.allocatable) == (desired_count(record), desired_count(record))
                assert seen.is_capacity_ours
            elif record.has_status:
                assert not seen.is_capacity_ours

    def teardown(self) -> None:
        """When the others let go, every number is ours and right after the longest wait."""
        for resource in (GPU, NIC):
            self.model.node.update("admin", resource, None)
        for _ in range(2):
            self.model.now += 1000
            self.model.reconcile()
        for resource in {GPU, NIC} - {record.resource for record in self.model.node_devices.values()}:
            assert not self.model.node.seen(resource).is_capacity_ours
        for record in self.model.node_devices.values():
            wanted = None if record.endpoint == "Gone" and not record.allocated else desired_count(record)
            if record.has_status:
                seen = self.model.node.seen(record.resource)
                assert (seen.capacity, seen.allocatable) == (wanted, wanted)
                assert not record.is_condition(Condition.CONFLICT, "True")


TestNodeLife = NodeLife.TestCase
TestNodeLife.settings = settings(max_examples=examples(150), stateful_step_count=30, deadline=None)


@settings(deadline=None, max_examples=examples(100))
@given(words=st.lists(agent_words(), max_size=6), seed=st.integers(0, 999), reconciles=st.sets(st.integers(0, 5)))
def test_any_order_gives_the_same_final_apply(words: list[NodeDeviceRecord], seed: int, reconciles: set[int]) -> None:
    last = {record.resource: record for record in words}
    straight = OperatorModel()
    settle(straight, last.values())

    shuffled = OperatorModel()
    order = [record for record in words if last[record.resource] is not record]
    random.Random(seed).shuffle(order)
    order += sorted(last.values(), key=lambda record: random.Random(f"{seed}{record.resource}").random())
    for place, record in enumerate(order):
        shuffled.publish(record)
        if place in reconciles and all(record.has_status for record in shuffled.node_devices.values()):
            shuffled.reconcile()
    shuffled.reconcile()

    def numbers(model: OperatorModel) -> dict[str, int | None]:
        spoken = [record.resource for record in last.values() if record.has_status]
        return {resource: model.node.seen(resource).capacity for resource in spoken}

    assert numbers(shuffled) == numbers(straight)
