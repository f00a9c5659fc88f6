"""Reconciles one node: its capacity first, as pods wait for it, then its PodDevices and the conditions of its NodeDevices.

Does nothing before every list is complete, that of the agents' Leases among them: server-side apply removes from a Node what
an apply leaves out, and a PodDevice that no known NodeDevice calls for would be deleted. A rejected write stops nothing else: the
first failure is raised at the end, so that all of it is retried.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from nodedevice_kube.api_errors import ApiError

from nodedevice_operator.capacity.reconciler import CapacityMemory, CapacityOutcome, CapacityReconciler
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.leases.agent_monitor import AgentMonitor
from nodedevice_operator.reconcile.condition_reconciler import ConditionsMemory, ConditionsReconciler
from nodedevice_operator.reconcile.cordon_restorer import CordonReconciler, CordonsMemory
from nodedevice_operator.reconcile.poddevice_reconciler import PodDeviceMemory, PodDeviceReconciler
from nodedevice_operator.reconcile.turn import Budget, Turn
from nodedevice_operator.workqueue import WorkQueue

# For so long PodDevices and conditions are written though the node has changed, or its capacity is due, which comes first then.
# When hundreds of plugins stop at once, as many NodeDevices get new conditions.
_SLICE_SECONDS: Final = 0.2


@dataclass(slots=True)
class NodeMemory:
    """The state of a node between two reconciles. is_new: this operator has not reconciled it since it leads."""

    budget: Budget
    is_new: bool = True
    capacity: CapacityMemory = field(default_factory=CapacityMemory)
    pod_devices: PodDeviceMemory = field(default_factory=PodDeviceMemory)
    conditions: ConditionsMemory = field(default_factory=ConditionsMemory)
    cordons: CordonsMemory = field(default_factory=CordonsMemory)


@dataclass(eq=False, slots=True)
class NodeReconciler:
    cache: Cache
    agents: AgentMonitor
    capacity: CapacityReconciler
    pod_devices: PodDeviceReconciler
    conditions: ConditionsReconciler
    cordons: CordonReconciler
    queue: WorkQueue
    fence: WriteFence
    clock: Callable[[], float] = time.monotonic
    # called with each node that was reconciled
    on_done: Callable[[str], None] = lambda node: None
    _memories: dict[str, NodeMemory] = field(default_factory=dict, init=False)

    def changed(self, node: str) -> None:
        if self.fence.is_open or self.cache.knows(node):
            self.queue.enqueue(node)
        else:
            # nothing is reconciled now, and a standby would keep the names of all nodes that there ever were
            self.queue.discard(node)
            self._memories.pop(node, None)

    def take_over(self, another_wrote: bool, nobody_since: float) -> None:
        """another_wrote: starts as after a restart, first with nodes that changed since `nobody_since`; otherwise continues."""
        if another_wrote:
            self._memories.clear()
            self.queue.restart(self.cache.names_of_nodes(), nobody_since)
        else:
            self.queue.resume()

    async def reconcile(self, node: str) -> float | None:
        """Returns in how many seconds to reconcile it again, if needed. Raises ApiError if a step fails."""
        is_ready = self.cache.is_complete and self.agents.has_listed
        if not is_ready or self.cache.nodes.is_invalid(node):
            return None
        if not self.cache.knows(node):
            self._memories.pop(node, None)
            return None
        memory = self._memories.setdefault(node, NodeMemory(Budget(self.clock)))
        failures: list[ApiError] = []
        capacity = await self._reconcile_capacity(node, memory, failures)
        is_new, memory.is_new = memory.is_new, False
        if (capacity.has_written or is_new) and self.queue.is_crowded and not failures:
            # other nodes wait for their capacity, thousands of them after a start: the rest comes when all have theirs
            return 0.0
        must_end = partial(self._must_end, node, self.clock() + _SLICE_SECONDS, capacity.due_at)
        turn = Turn(memory.budget, must_end)
        self.capacity.report_contradictions(node, memory.capacity)
        self.capacity.report_excess(node, memory.capacity)
        try:
            await self.pod_devices.reconcile(node, memory.pod_devices, turn)
        except ApiError as error:
            failures.append(error)  # the conditions do not depend on PodDevices
        waits = [self.conditions.node_missing_wait(node, memory.conditions)]
        failures += await self.conditions.reconcile(node, memory.conditions, capacity, turn)
        failures += await self.cordons.reconcile(node, memory.cordons, turn)
        self.on_done(node)
        waits.append(turn.wait_seconds())
        if capacity.due_at is not None:
            waits.append(capacity.due_at - self.clock())
        seconds = min((seconds for seconds in waits if seconds is not None), default=None)
        if failures:
            # failures are retried with growing delays; timed work does not wait for that
            if seconds is not None:
                self.queue.enqueue_after(node, seconds)
            raise failures[0]
        return seconds

    def _must_end(self, node: str, ends_at: float, due_at: float | None) -> bool:
        now = self.clock()
        is_due = due_at is not None and now >= due_at
        return now >= ends_at and (is_due or self.queue.has_changed_since(node))

    async def _reconcile_capacity(self, node: str, memory: NodeMemory, failures: list[ApiError]) -> CapacityOutcome:
        agent = self.agents.state(node)
        try:
            return await self.capacity.reconcile(node, memory.capacity, agent)
        except ApiError as error:
            if error.concerns_all_requests:
                raise
            failures.append(error)
            return self.capacity.rejected(node, memory.capacity, agent, error)
