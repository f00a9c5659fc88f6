"""Writes what core.capacity decides: one server-side apply after the other until the Node shows it.

After each apply the answer of the API server takes the place of the record, and everything is decided anew.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_operator.core.capacity import Apply, CapacityDecision, Verdict, decide, is_real
from nodedevice_operator.core.history import NodeHistory
from nodedevice_operator.core.leases import AgentState
from nodedevice_operator.core.records import NodeDeviceRecord, NodeRecord
from nodedevice_operator.core.refusals import as_before_refusal, verdicts_when_refused
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.cluster import Cluster
from nodedevice_operator.edges.metrics import Metrics
from nodedevice_operator.edges.recorder import Recorder
from nodedevice_operator.errors import ApiError, Conflict, Invalid, NotFound

log = logging.getLogger(__name__)

# A forced apply, the unforced one after it, and a refusal in between; whoever writes faster than that is met next time.
_MOST_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: what became of each resource, the history to keep, and when to look again (monotonic seconds).

    No verdicts where the Node is gone, or another. has_written: the Node was changed.
    """

    verdicts: Mapping[str, Verdict]
    history: NodeHistory | None
    look_again_at: float | None
    has_written: bool = False


class CapacityWork:
    """Capacity and allocatable of one Node at a time."""

    def __init__(
        self,
        cache: Cache,
        cluster: Cluster,
        recorder: Recorder,
        metrics: Metrics,
        unguarded: Callable[[Iterable[NodeDeviceRecord]], frozenset[str]] = lambda _: frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._unguarded = unguarded
        self._cache = cache
        self._cluster = cluster
        self._recorder = recorder
        self._metrics = metrics
        # by node: since when it is behind a NodeDevice that changed (monotonic seconds)
        self._changed_at: dict[str, float] = {}

    def heard(self, name: str) -> None:
        """A NodeDevice of that node changed: from now on the Node may be behind it."""
        if self._cache.nodes.get(name) is not None:
            self._changed_at.setdefault(name, self._clock())

    def forget_changes(self) -> None:
        """Begin to write: what changed while another wrote is none of our delay."""
        self._changed_at.clear()

    async def look(self, name: str, history: NodeHistory | None, agent: AgentState) -> Outcome:
        """Bring the Node to what its NodeDevices say. agent: whether the node's agent lives.

        Raises Conflict when the Node changes faster than it can be decided about, or another ApiError.
        """
        # what changes from here on is another change
        changed_at = self._changed_at.pop(name, None)
        try:
            outcome = await self._look(name, history, agent)
        except ApiError:
            if changed_at is not None:
                self._changed_at[name] = changed_at
            raise
        if changed_at is not None and outcome.has_written:
            self._metrics.change_to_node_seconds.observe(self._clock() - changed_at)
        return outcome

    def refused(self, name: str, history: NodeHistory | None, agent: AgentState) -> Mapping[str, Verdict | None]:
        """What is to be told of each resource after a look that failed; None: what is told of it already."""
        node = self._cache.nodes.get(name)
        if node is None:
            return {}
        records = filter(is_real, self._cache.node_devices.of_node(name))
        return verdicts_when_refused(node, records, self._decide(node, history, agent))

    async def _look(self, name: str, history: NodeHistory | None, agent: AgentState) -> Outcome:
        refused: Conflict | None = None
        has_written = False
        for _ in range(_MOST_ROUNDS):
            node = self._cache.nodes.get(name)
            if node is None:
                return _nothing(history)
            decision = self._decide(node, history, agent)
            if decision.apply is not None:
                try:
                    if not await self._write(node, decision.apply):
                        return _nothing(history)
                except Conflict as conflict:
                    refused = conflict
                    await self._read_again(node)
                    continue
                has_written = True
            history = decision.history
            self._tell(name, decision)
            if decision.apply is None:
                return Outcome(decision.verdicts, history, decision.look_again_at, has_written)
        raise refused or Conflict("patch", "nodes/status", "the Node changes faster than it is written")

    def _decide(self, node: NodeRecord, history: NodeHistory | None, agent: AgentState) -> CapacityDecision:
        records = [as_before_refusal(record) for record in self._cache.node_devices.of_node(node.name)]
        return decide(node, records, history, self._clock(), agent, self._unguarded(records))

    async def _write(self, node: NodeRecord, apply: Apply) -> bool:
        """Apply; False when the Node is gone or is another one. Raises Conflict when others own what must change."""
        try:
            written = await self._cluster.apply_capacity(node, apply.numbers, force=apply.is_forced)
        except NotFound:
            return False
        except Invalid:
            # the uid: this name belongs to a new Node, or a number is not one; the watch tells which
            await self._read_again(node)
            again = self._cache.nodes.get(node.name)
            if again is not None and again.uid == node.uid:
                raise
            return False
        self._cache.nodes.put(written)
        log.info(
            "capacity written",
            extra={"node": node.name, "numbers": dict(sorted(apply.numbers.items())), "forced": apply.is_forced},
        )
        return True

    async def _read_again(self, node: NodeRecord) -> None:
        try:
            self._cache.nodes.put(await self._cluster.read_node(node.name))
        except NotFound:
            self._cache.nodes.remove(node.name, node.uid)

    def _tell(self, name: str, decision: CapacityDecision) -> None:
        for cause in decision.repairs:
            self._metrics.drift_repairs.labels(cause=cause).inc()
        for event in decision.events:
            log.warning("capacity of others", extra={"node": name, "reason": event.reason, "detail": event.message})
            self._recorder.post(event)


def _nothing(history: NodeHistory | None) -> Outcome:
    return Outcome({}, history, None)
