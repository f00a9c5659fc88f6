"""The operator's reconciles at one Node without any I/O: the API server is a model, and time is given.

It does what the edges do: decide, apply, take the answer, decide again, and store the conditions in the end.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from nodedevice_api import names
from nodedevice_api.nodedevice import Waiting
from nodedevice_operator.capacity.decide import Apply, CapacityDecision, decide
from nodedevice_operator.capacity.ownership import NodeHistory
from nodedevice_operator.leases.agent_liveness import ALIVE, AgentState
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.events import Event
from nodedevice_operator.reconcile import conditions
from nodedevice_operator.reconcile.conditions import agent_events

from tests.fakes.operator.node_status import NodeStatusModel

GPU = "example.com/gpu"
NIC = "example.com/nic"
_MOST_ROUNDS = 5


def node_device(
    resource: str = GPU, *, node: str = "node-a", owner_uid: str | None = "uid-1", **fields: Any
) -> NodeDeviceRecord:
    """A NodeDevice whose agent has spoken; `fields` as in the record."""
    record = NodeDeviceRecord(
        name=names.node_device_name(node, resource),
        uid=f"nd-{resource}",
        generation=1,
        resource_version=1,
        node=node,
        resource=resource,
        owner_uid=owner_uid,
        has_status=True,
        endpoint="Running",
        conditions={
            names.Condition.REGISTERED: StoredCondition("True", names.Reason.ENDPOINT_RUNNING, "", "then", 1),
            names.Condition.HEALTHY: StoredCondition("True", names.Reason.ALL_HEALTHY, "", "then", 1),
        },
    )
    return replace(record, **fields)


def waits(
    pod_uid: str, container: str, reason: str, namespace: str = "", name: str = "", message: str = "", **more: Any
) -> Waiting:
    """A container that waits, as in a NodeDevice. more: final, not_injected."""
    who: dict[str, Any] = {"namespace": namespace, "name": name, "pod_uid": pod_uid, "container": container}
    return Waiting(**who, reason=reason, message=message, **more)


def not_configured(
    resource: str = GPU, *, is_withdrawn: bool = True, reason: str = names.Reason.NOT_CONFIGURED, **fields: Any
) -> NodeDeviceRecord:
    """One whose built-in plugin was taken out of the configuration. is_withdrawn: and whose name has left the Node.

    reason: PlaceTaken for one whose place another name has.
    """
    conditions = {
        names.Condition.REGISTERED: StoredCondition("False", reason, "", "then", 1),
        names.Condition.HEALTHY: StoredCondition("False", names.Reason.NO_DEVICES, "", "then", 1),
    }
    if is_withdrawn:
        conditions[names.Condition.ADVERTISED] = StoredCondition("False", reason, "", "then", 1)
    return node_device(resource, **{"endpoint": "Gone", "conditions": conditions, **fields})


@dataclass
class OperatorModel:
    """One operator process and what it did: applies that were sent, Events and repairs that were reported."""

    node: NodeStatusModel = field(default_factory=NodeStatusModel)
    node_devices: dict[str, NodeDeviceRecord] = field(default_factory=dict)
    history: NodeHistory | None = None
    now: float = 1000.0
    applies: list[Apply] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    agent: AgentState = ALIVE

    def publish(self, record: NodeDeviceRecord) -> None:
        """Take in what an agent reports; the operator's conditions stay as they are stored."""
        stored = self.node_devices.get(record.name)
        ours = {} if stored is None else {k: v for k, v in stored.conditions.items() if k in names.OPERATOR_CONDITIONS}
        self.node_devices[record.name] = replace(record, conditions={**record.conditions, **ours})

    def reconcile(self) -> CapacityDecision:
        """One reconcile at the Node; fails when it does not come to an end."""
        for _ in range(_MOST_ROUNDS):
            decision = decide(self.node.record(), self.node_devices.values(), self.history, self.now, self.agent)
            if decision.apply is not None:
                self.applies.append(decision.apply)
                if not self.node.apply(decision.apply.numbers, force=decision.apply.is_forced):
                    raise AssertionError(f"refused although the Node was known: {decision.apply}")
            self.history = decision.history
            self.events += decision.events
            self.repairs += decision.repairs
            if decision.apply is None:
                self._store_conditions(decision)
                return decision
        raise AssertionError("the reconcile does not come to an end")

    def restart(self) -> None:
        """Lose what only the process knew."""
        self.history = None

    def reported(self) -> list[str]:
        """Reasons of the Events so far; of what is reported on the Node and on its NodeDevice, once."""
        on_node = {(event.reason, event.message) for event in self.events if event.about.kind == "Node"}
        return [
            event.reason
            for event in self.events
            if event.about.kind == "Node" or (event.reason, event.message) not in on_node
        ]

    def shown(self, resource: str = GPU) -> tuple[int | None, int | None]:
        """Capacity and allocatable that the Node shows."""
        seen = self.node.seen(resource)
        return seen.capacity, seen.allocatable

    def condition(self, kind: str, resource: str = GPU) -> StoredCondition:
        """A stored condition."""
        return self.node_devices[names.node_device_name(self.node.name, resource)].conditions[kind]

    def _store_conditions(self, decision: CapacityDecision) -> None:
        for name, record in self.node_devices.items():
            verdict = decision.statuses.get(record.resource)
            if verdict is None or not record.has_status or record.owner_uid != self.node.uid:
                continue
            desired = conditions.desired(record, verdict, self.agent)
            values = conditions.changed(record, desired, f"t{self.now}")
            self.events += agent_events(record, desired) if values else ()
            self.node_devices[name] = replace(record, conditions={**record.conditions, **values})


def settle(model: OperatorModel, records: Iterable[NodeDeviceRecord]) -> CapacityDecision:
    """Publish all of these and reconcile once."""
    for record in records:
        model.publish(record)
    return model.reconcile()


def advertising(available: int = 4, **fields: Any) -> OperatorModel:
    """An operator whose Node shows that many GPUs, with nothing reported and nothing counted so far."""
    model = OperatorModel()
    settle(model, [node_device(available=available, **fields)])
    assert model.node.seen(GPU).capacity == available + int(fields.get("allocated", 0))
    model.applies.clear()
    return model
