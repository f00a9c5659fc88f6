"""Writes what core.capacity decides: one server-side apply after the other until the Node shows it.

After each apply the answer of the API server takes the place of the record, and everything is decided anew.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_operator.agents.liveness import AgentState
from nodedevice_operator.capacity.api import CapacityApi
from nodedevice_operator.capacity.decide import Apply, CapacityDecision, Verdict, decide
from nodedevice_operator.capacity.history import NodeHistory, history_of, with_conflicts
from nodedevice_operator.capacity.rejected_writes import as_before_refusal, verdicts_when_refused
from nodedevice_operator.errors import ApiError, Conflict, Invalid, NotFound
from nodedevice_operator.events.recorder import Recorder
from nodedevice_operator.events.transitions import Event, EventReason
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.node import NodeRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real

log = logging.getLogger(__name__)

# A forced apply, the unforced one after it, and a refusal in between; whoever writes faster than that is met next time.
_MOST_ROUNDS: Final = 5
# One failed write is what the next look settles; so many in a row are told, as the log tells them.
_TELL_AFTER: Final = 3


@dataclass(slots=True)
class CapacityMemory:
    """What is remembered of a Node between two looks. history: what was carried out. refusals: looks in a row that failed."""

    history: NodeHistory | None = None
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it ended: what is to be told of each resource (None: what is told already), and when to look again (monotonic seconds).

    No verdicts where the Node is gone, or another. has_written: the Node was changed. refusal: why it could not be, in the API
    server's words.
    """

    verdicts: Mapping[str, Verdict | None]
    look_again_at: float | None = None
    has_written: bool = False
    refusal: str = ""


_NOTHING: Final = Outcome({})


class CapacityWork:
    """Capacity and allocatable of one Node at a time."""

    def __init__(
        self,
        cache: Cache,
        api: CapacityApi,
        recorder: Recorder,
        metrics: Metrics,
        unguarded: Callable[[Iterable[NodeDeviceRecord]], frozenset[str]] = lambda _: frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._unguarded = unguarded
        self._cache = cache
        self._api = api
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

    async def look(self, name: str, memory: CapacityMemory, agent: AgentState) -> Outcome:
        """Bring the Node to what its NodeDevices say. agent: whether the node's agent lives.

        Raises Conflict when the Node changes faster than it can be decided about, or another ApiError; what was written until
        then is in `memory`.
        """
        # what changes from here on is another change
        changed_at = self._changed_at.pop(name, None)
        try:
            outcome = await self._look(name, memory, agent)
        except ApiError:
            if changed_at is not None:
                self._changed_at[name] = changed_at
            raise
        memory.refusals = 0
        if changed_at is not None and outcome.has_written:
            self._metrics.change_to_node_seconds.observe(self._clock() - changed_at)
        return outcome

    def refused(self, name: str, memory: CapacityMemory, agent: AgentState, error: ApiError) -> Outcome:
        """How a look ended that failed of `error`: at first nothing new is told of capacity.

        Then a name that others hold is told of like one that is found when all can be written: it is theirs just the same.
        """
        memory.refusals += 1
        node = self._cache.nodes.get(name)
        if node is None:
            return _NOTHING
        records = [record for record in self._cache.node_devices.of_node(name) if is_real(record)]
        if memory.refusals < _TELL_AFTER:
            return Outcome(dict.fromkeys(record.resource for record in records))
        decision = self._decide(node, memory.history, agent)
        memory.history = with_conflicts(history_of(node.uid, memory.history), decision.history)
        self._tell(name, (event for event in decision.events if event.reason == EventReason.CAPACITY_CONFLICT))
        return Outcome(verdicts_when_refused(node, records, decision), refusal=error.problem)

    async def _look(self, name: str, memory: CapacityMemory, agent: AgentState) -> Outcome:
        refused: Conflict | None = None
        has_written = False
        for _ in range(_MOST_ROUNDS):
            node = self._cache.nodes.get(name)
            if node is None:
                return _NOTHING
            decision = self._decide(node, memory.history, agent)
            if decision.apply is not None:
                try:
                    if not await self._write(node, decision.apply):
                        return _NOTHING
                except Conflict as conflict:
                    refused = conflict
                    await self._read_again(node)
                    continue
                has_written = True
            memory.history = decision.history
            for cause in decision.repairs:
                self._metrics.drift_repairs.labels(cause=cause).inc()
            self._tell(name, decision.events)
            if decision.apply is None:
                return Outcome(decision.verdicts, decision.look_again_at, has_written)
        raise refused or Conflict("patch", "nodes/status", "the Node changes faster than it is written")

    def _decide(self, node: NodeRecord, history: NodeHistory | None, agent: AgentState) -> CapacityDecision:
        records = [as_before_refusal(record) for record in self._cache.node_devices.of_node(node.name)]
        return decide(node, records, history, self._clock(), agent, self._unguarded(records))

    async def _write(self, node: NodeRecord, apply: Apply) -> bool:
        """Apply; False when the Node is gone or is another one. Raises Conflict when others own what must change."""
        try:
            written = await self._api.apply_capacity(node, apply.numbers, force=apply.is_forced)
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
            self._cache.nodes.put(await self._api.read_node(node.name))
        except NotFound:
            self._cache.nodes.remove(node.name, node.uid)

    def _tell(self, name: str, events: Iterable[Event]) -> None:
        for event in events:
            log.warning("capacity of others", extra={"node": name, "reason": event.reason, "detail": event.message})
            self._recorder.post(event)
