"""Writes the decided capacity of a Node: one server-side apply after another until the Node shows it.

The response to each apply replaces the record, and everything is decided again. The writes of one Node have a budget; a write
beyond it waits and is then decided again, so the last state always arrives.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_common.pacing import TokenBucket
from nodedevice_kube.api_errors import ApiError, Conflict, Invalid, NotFound
from nodedevice_kube.paths import NODES

from nodedevice_operator.capacity.decide import (
    Apply,
    CapacityDecision,
    ResourceStatus,
    as_before_rejection,
    contradictions,
    decide,
    is_loss,
    statuses_when_rejected,
)
from nodedevice_operator.capacity.ownership import NodeHistory, history_of, with_conflicts
from nodedevice_operator.informers.memory_bounds import MOST_OF_NODE
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.leases.agent_liveness import AgentState
from nodedevice_operator.objects.node import NodeRecord, NodeSchema, node_record
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.observability.events import WARNING, Event, EventReason, about_node, about_node_device
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController

log = logging.getLogger(__name__)

# A forced apply, the unforced one after it, and a conflict in between; a faster writer is met at the next reconcile.
_MOST_ROUNDS: Final = 5
# One failed write is settled by the next reconcile; so many in a row are reported in conditions, as in the log.
_REPORT_AFTER: Final = 3


# For one Node: a device plugin can change its devices as fast as it likes.
NODE_WRITES_PER_SECOND: Final = 5.0
NODE_WRITES_AT_ONCE: Final = 20
# So many of these are for losses only: a gain never makes the loss after it wait.
_KEPT_FOR_LOSSES: Final = 1

# The log line of each Event.
_LOGGED: Final = {
    EventReason.CAPACITY_REPAIRED: "drift: another client changed an extended resource; restored it",
    EventReason.CAPACITY_CONFLICT: "conflict: an extended resource is owned by another field manager",
    EventReason.CAPACITY_CONFLICT_ENDED: "conflict over an extended resource has ended",
}


@dataclass(slots=True)
class CapacityMemory:
    """rejections: in a row. contradictions: the reported ones, by NodeDevice. writes: the budget, from the first write on."""

    history: NodeHistory | None = None
    rejections: int = 0
    contradictions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    is_excess_reported: bool = False
    writes: TokenBucket | None = None


@dataclass(frozen=True, slots=True)
class CapacityOutcome:
    """statuses: None keeps the stored one; empty if the Node is gone. due_at: when to reconcile again (monotonic seconds).

    is_late: it has still to be written, when its budget allows it. rejection: why it could not be, in the API server's words.
    """

    statuses: Mapping[str, ResourceStatus | None]
    due_at: float | None = None
    has_written: bool = False
    is_late: bool = False
    rejection: str = ""


_NOTHING: Final = CapacityOutcome({})


class CapacityApi(Requests):
    async def read_node(self, name: str) -> NodeRecord:
        """The current Node. Raises NotFound."""
        data = await self._client.request("GET", *at(NODES, name))
        return decode_record("GET", "nodes", data, NodeSchema, node_record)

    async def apply_capacity(self, node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
        """Applies exactly these extended resources, and no other of ours, to this version of the Node; returns the Node then.

        Raises Conflict if the Node has changed, or if others own a field and force is False; Invalid if it has another uid.
        """
        quantities = {resource: str(number) for resource, number in sorted(numbers.items())}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            # The API server rejects the apply if the uid or the version differs: the Node was recreated under this name,
            # or another client, in particular another operator, has written it since the decision.
            "metadata": {"name": node.name, "uid": node.uid, "resourceVersion": str(node.resource_version)},
            "status": {"capacity": quantities, "allocatable": quantities},
        }
        data = await self._apply(*at(NODES, node.name, subresource="status"), body, force=force)
        return decode_record("PATCH", "nodes", data, NodeSchema, node_record)


@dataclass(eq=False, slots=True)
class CapacityReconciler:
    cache: Cache
    api: CapacityApi
    recorder: EventRecorder
    metrics: Metrics
    required_plugins: RequiredPluginsController
    clock: Callable[[], float] = time.monotonic
    # by node: since when it is behind a NodeDevice that changed (monotonic seconds)
    _changed_at: dict[str, float] = field(default_factory=dict, init=False)

    def on_update(self, node: str, _: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        """A NodeDevice changed: from now on its Node may be behind it."""
        if now is not None and self.cache.nodes.get(node) is not None:
            self._changed_at.setdefault(node, self.clock())

    def forget_changes(self) -> None:
        """Resets the delay metrics when this operator begins to lead: it did not cause delays under another leader."""
        self._changed_at.clear()

    async def reconcile(self, node: str, memory: CapacityMemory, agent: AgentState) -> CapacityOutcome:
        """Brings the Node to the state of its NodeDevices; `memory` holds the writes, also those before an error.

        Raises Conflict when the Node changes faster than it can be decided on, or another ApiError.
        """
        # a change from here on is another change
        changed_at = self._changed_at.pop(node, None)
        try:
            outcome = await self._apply_rounds(node, memory, agent)
        except ApiError:
            if changed_at is not None:
                self._changed_at[node] = changed_at
            raise
        memory.rejections = 0
        if changed_at is not None and outcome.is_late:
            self._changed_at[node] = changed_at
        elif changed_at is not None and outcome.has_written:
            self.metrics.change_to_node_seconds.observe(self.clock() - changed_at)
        return outcome

    def rejected(self, name: str, memory: CapacityMemory, agent: AgentState, error: ApiError) -> CapacityOutcome:
        """At first the stored capacity conditions hold. After several failures a name that others own is reported as a conflict."""
        memory.rejections += 1
        node = self.cache.nodes.get(name)
        if node is None:
            return _NOTHING
        records = self._records(name)
        if memory.rejections < _REPORT_AFTER:
            return CapacityOutcome(dict.fromkeys(record.resource for record in records))
        decision = self._decide(node, memory.history, agent)
        memory.history = with_conflicts(history_of(node.uid, memory.history), decision.history)
        self._report(name, (event for event in decision.events if event.reason == EventReason.CAPACITY_CONFLICT))
        return CapacityOutcome(statuses_when_rejected(node, records, decision), rejection=error.problem)

    def report_contradictions(self, name: str, memory: CapacityMemory) -> None:
        """Report, once, the contradictions in each NodeDevice."""
        found: dict[str, tuple[str, ...]] = {}
        for record in self._records(name):
            sentences = contradictions(record)
            if sentences:
                found[record.name] = sentences
            if sentences and memory.contradictions.get(record.name) != sentences:
                problem = "; ".join(sentences)
                log.warning("NodeDevice contradicts itself", extra={"nodedevice": record.name, "error": problem})
                message = f"{record.resource} on {record.node}: {problem}"
                about = about_node_device(record)
                self.recorder.post(Event(about, WARNING, EventReason.CONTRADICTION, message, is_ongoing=True))
        memory.contradictions = found

    def report_excess(self, name: str, memory: CapacityMemory) -> None:
        """Report, once, that there are more NodeDevices of a Node than count."""
        left_out, node = self.cache.node_devices.left_out(name), self.cache.nodes.get(name)
        if left_out and node is not None and not memory.is_excess_reported:
            message = (
                f"node {name} has {MOST_OF_NODE + left_out} NodeDevices, and the oldest {MOST_OF_NODE} are taken into account: "
                "delete the ones that its agent does not need, and find out who made them"
            )
            log.warning("too many NodeDevices of one node", extra={"node": name, "left_out": left_out})
            about = about_node(node)
            self.recorder.post(Event(about, WARNING, EventReason.TOO_MANY_NODE_DEVICES, message, is_ongoing=True))
        memory.is_excess_reported = bool(left_out)

    def _records(self, node: str) -> list[NodeDeviceRecord]:
        return [record for record in self.cache.node_devices.of_node(node) if is_real(record)]

    async def _apply_rounds(self, name: str, memory: CapacityMemory, agent: AgentState) -> CapacityOutcome:
        rejection: Conflict | None = None
        has_written = False
        for _ in range(_MOST_ROUNDS):
            node = self.cache.nodes.get(name)
            if node is None:
                return _NOTHING
            decision = self._decide(node, memory.history, agent)
            if decision.apply is not None:
                wait = self._wait_seconds(memory, is_loss=is_loss(node, decision.apply))
                if wait > 0.0:
                    return CapacityOutcome(
                        dict.fromkeys(decision.statuses), self.clock() + wait, has_written, is_late=True
                    )
                try:
                    if not await self._write(node, decision.apply):
                        return _NOTHING
                except Conflict as conflict:
                    rejection = conflict
                    await self._read_again(node)
                    continue
                has_written = True
            memory.history = decision.history
            for cause in decision.repairs:
                self.metrics.drift_repairs.labels(cause=cause).inc()
            self._report(name, decision.events)
            for change in decision.changes:
                self.recorder.post(change)
            if decision.apply is None:
                return CapacityOutcome(decision.statuses, decision.due_at, has_written)
        raise rejection or Conflict("patch", "nodes/status", "the Node changes faster than it is written")

    def _wait_seconds(self, memory: CapacityMemory, *, is_loss: bool) -> float:
        """How long until the Node may be written; 0: now, and the write is counted."""
        now = self.clock()
        if memory.writes is None:
            memory.writes = TokenBucket(NODE_WRITES_PER_SECOND, NODE_WRITES_AT_ONCE, now)
        keep = 0 if is_loss else _KEPT_FOR_LOSSES
        return 0.0 if memory.writes.take(now, keep) else memory.writes.wait_seconds(now, keep)

    def _decide(self, node: NodeRecord, history: NodeHistory | None, agent: AgentState) -> CapacityDecision:
        records = [as_before_rejection(record) for record in self.cache.node_devices.of_node(node.name)]
        return decide(node, records, history, self.clock(), agent, self.required_plugins.unguarded(records))

    async def _write(self, node: NodeRecord, apply: Apply) -> bool:
        """Apply; False when the Node is gone or is another one. Raises Conflict when others own what must change."""
        try:
            written = await self.api.apply_capacity(node, apply.numbers, force=apply.is_forced)
        except NotFound:
            return False
        except Invalid:
            # Either the uid differs (a new Node has this name), or a number is invalid. Reading the Node shows which.
            await self._read_again(node)
            again = self.cache.nodes.get(node.name)
            if again is not None and again.uid == node.uid:
                raise
            return False
        self.cache.nodes.put(written)
        fields = {"node": node.name, "numbers": dict(sorted(apply.numbers.items())), "forced": apply.is_forced}
        log.info("capacity written", extra=fields)
        return True

    async def _read_again(self, node: NodeRecord) -> None:
        try:
            self.cache.nodes.put(await self.api.read_node(node.name))
        except NotFound:
            self.cache.nodes.remove(node.name, node.uid)

    def _report(self, name: str, events: Iterable[Event]) -> None:
        for event in events:
            # each is on the Node and on the NodeDevice
            if event.about.kind == "Node":
                log.warning(_LOGGED[event.reason], extra={"node": name, "detail": event.message})
            self.recorder.post(event)
