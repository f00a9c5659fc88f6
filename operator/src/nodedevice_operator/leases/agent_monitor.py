"""Polls the agents' Leases, enqueues each node whose agent came or went, and reports the agents' annotations.

Each poll is a whole list from the API server's watch cache: a watch would deliver every renewal of every agent. If the list is
older than the last, as after a restore, a consistent list decides. The first list waits for all NodeDevices, whose stored
conditions about agents hold until a list succeeds: a failed request proves nothing about the agents.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_api.names import Condition, Reason
from nodedevice_common.pacing import TokenBucket
from nodedevice_common.tasks import apart
from nodedevice_kube.api_errors import ApiError
from nodedevice_kube.paths import LEASES

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.leases.agent_liveness import (
    ALIVE,
    GRACE_SECONDS,
    MISSING,
    AgentState,
    LeaseTable,
    stored_agents,
    stored_state,
)
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.unwatched import LeaseRecord, LeaseSchema, lease_record
from nodedevice_operator.observability.events import NORMAL, WARNING, About, Event, EventReason, about_node
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 10.0
# The agent of a new node creates its Lease about when it creates its NodeDevices: so many polls are closer together.
_CLOSE_INTERVAL_SECONDS: Final = 1.0
_CLOSE_POLLS: Final = 20
# Polls that are brought forward, for nodes whose silent agent may be back: each lists all Leases.
_EARLY_PER_SECOND: Final = 0.5
_EARLY_AT_ONCE: Final = 3


class AgentsApi(Requests):
    """Reads Leases in one namespace, which holds nothing but the agents'."""

    def __init__(self, client: Client, leases_namespace: str) -> None:
        super().__init__(client)
        self.leases_namespace = leases_namespace

    async def list_leases(self, *, is_consistent: bool = False) -> dict[str, LeaseRecord]:
        """The agents' Leases by node, from the API server's watch cache, which costs it nothing; is_consistent: from its store."""
        query = {} if is_consistent else {"resourceVersion": "0"}
        pages = self._pages(*at(LEASES, namespace=self.leases_namespace), LeaseSchema, query)
        return {lease.metadata.name: lease_record(lease) async for page in pages for lease in page}


@dataclass(eq=False)
class AgentMonitor:
    api: AgentsApi
    cache: Cache
    queue: WorkQueue
    metrics: Metrics
    recorder: EventRecorder
    grace_seconds: float = GRACE_SECONDS
    interval_seconds: float = INTERVAL_SECONDS
    clock: Callable[[], float] = time.monotonic
    # called after each poll with the Leases by node
    on_poll: Callable[[Mapping[str, LeaseRecord]], object] = field(default_factory=lambda: dict, init=False)
    # whether a list was tried: capacity need not wait until one succeeds
    has_listed: bool = field(default=False, init=False)
    # by node without a Lease: after how many polls
    _missing: dict[str, int] = field(default_factory=dict, init=False)
    # by node with refusals: the refusals on its agent's Lease at the last poll
    _refusals: dict[str, frozenset[str]] = field(default_factory=dict, init=False)
    _poll_soon: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # the budget of polls that are brought forward, from the first one on
    _early: TokenBucket | None = field(default=None, init=False)
    # by node of a silent agent: when a change there last brought a poll forward
    _brought_forward: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._table = LeaseTable(self.grace_seconds)

    def state(self, node: str) -> AgentState:
        """The state of that node's agent; without a known Lease, it brings the next poll forward."""
        return self._state(node, self.cache.node_devices.of_node(node))

    def state_for(self, record: NodeDeviceRecord) -> AgentState:
        """The same for one NodeDevice. While no Lease is known, the NodeDevice's own conditions count."""
        own = [record] if Condition.AGENT_READY in record.conditions else self.cache.node_devices.of_node(record.node)
        return self._state(record.node, own)

    def on_update(self, node: str, _: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        """Polls soon if the agent is silent, at most once per interval: one node's token could change NodeDevices without end."""
        if now is None or self._table.state(node).status == "True":
            return
        moment = self.clock()
        if moment - self._brought_forward.get(node, -math.inf) >= self.interval_seconds:
            self._brought_forward[node] = moment
            self._poll_soon.set()

    async def work(self) -> None:
        await self.cache.synced.wait()
        while True:
            try:
                await self._poll()
            except ApiError as error:
                log.debug("Leases not listed", extra={"error": str(error)})
                if not self.has_listed:
                    self._begin()
                await asyncio.sleep(self._retry_seconds(error))
            else:
                await self._pause(self._interval())

    async def _poll(self) -> None:
        """Raises ApiError, and then keeps the table."""
        found = await self.api.list_leases()
        if self._table.is_newer_than(found):
            found = await self.api.list_leases(is_consistent=True)
        nodes = self.cache.node_devices.nodes()
        before = self._table
        never_seen = [node for node in nodes if node not in before.leases]
        stored = stored_agents(record for node in never_seen for record in self.cache.node_devices.of_node(node))
        self._table = before.updated(found, self.clock(), nodes, stored)
        with apart("reports of agents"):
            self._report_agents(before, nodes)
            self._report_refusals(found, is_first=before.listed_at is None)
            self.on_poll(found)
        if before.listed_at is None:
            self._begin()
        else:
            for node in self._table.changes_since(before) & nodes:
                self.queue.enqueue(node)
        self._count_missing(nodes)
        self._brought_forward = {node: at for node, at in self._brought_forward.items() if node in nodes}

    def _begin(self) -> None:
        """Enqueues every node: none was reconciled before. From now on the listed, or else the stored, state counts."""
        self.has_listed = True
        for node in self.cache.names_of_nodes():
            self.queue.enqueue(node)

    def _interval(self) -> float:
        is_close = self._table.listed_at is None or any(polls < _CLOSE_POLLS for polls in self._missing.values())
        return min(_CLOSE_INTERVAL_SECONDS, self.interval_seconds) if is_close else self.interval_seconds

    def _retry_seconds(self, error: ApiError) -> float:
        return max(self._interval(), error.retry_after_seconds)

    def _state(self, node: str, records: Iterable[NodeDeviceRecord]) -> AgentState:
        if node in self._table.leases:
            return self._table.state(node)
        stored = stored_state(records)
        if self._table.listed_at is None:
            return stored or ALIVE
        if stored is not None and stored.reason != Reason.LEASE_MISSING:
            return stored  # written by another operator since our last poll: the next one shows
        if node not in self._missing and self.cache.node_devices.is_about(node):
            self._missing[node] = 0
            self._poll_soon.set()
        return MISSING

    def _report_agents(self, before: LeaseTable, nodes: frozenset[str]) -> None:
        """Count the agents, and report when too many fall silent together, and when that is over."""
        counts = Counter(_metric_state(self._table.state(node)) for node in nodes)
        for state in ("alive", "silent", "withdrawn", "missing"):
            self.metrics.agents.labels(state=state).set(counts[state])
        self.metrics.agent_outage.set(len(self._table.outage))
        if bool(self._table.outage) == bool(before.outage):
            return
        about = About("v1", "Namespace", "", self.api.leases_namespace, "")
        if self._table.outage:
            numbers = f"{len(self._table.outage)} of {len(nodes)} agents"
            log.error("many agent Leases expired together; withdrawing nothing", extra={"agents": numbers})
            message = (
                f"{numbers} stopped renewing their Leases at about the same time; no devices are withdrawn: "
                "check the API server and the network"
            )
            self.recorder.post(Event(about, WARNING, EventReason.AGENTS_SILENT_TOGETHER, message))
        else:
            log.info("agent lease outage resolved", extra={"silent": counts["silent"]})
            message = f"{counts['alive']} of {len(nodes)} agents renew their Leases"
            self.recorder.post(Event(about, NORMAL, EventReason.AGENTS_SILENT_ENDED, message))

    def _report_refusals(self, found: Mapping[str, LeaseRecord], *, is_first: bool) -> None:
        """Reports new refusals. The ones at the first poll were reported before."""
        known = self._refusals
        self._refusals = {}
        for name, lease in found.items():
            node = self.cache.nodes.get(name) if lease.refusals else None
            if node is None:
                continue
            self._refusals[name] = frozenset(lease.refusals)
            for refusal in sorted(self._refusals[name] - known.get(name, frozenset())) if not is_first else ():
                message = f"a device plugin's registration was refused: {refusal}"
                self.recorder.post(Event(about_node(node), WARNING, EventReason.REGISTRATION_REFUSED, message))

    def _count_missing(self, nodes: frozenset[str]) -> None:
        self._missing = {
            node: polls + 1
            for node, polls in self._missing.items()
            if node in nodes and self._table.state(node) == MISSING
        }

    async def _pause(self, seconds: float) -> None:
        """Wait; cut short when the Lease of a node is wanted soon, by a moment later, so that one poll serves many nodes."""
        try:
            async with asyncio.timeout(seconds):
                await self._poll_soon.wait()
        except TimeoutError:
            return
        now = asyncio.get_running_loop().time()
        if self._early is None:
            self._early = TokenBucket(_EARLY_PER_SECOND, _EARLY_AT_ONCE, now)
        await asyncio.sleep(max(_CLOSE_INTERVAL_SECONDS / 4, self._early.reserve(now)))
        self._poll_soon.clear()


def _metric_state(state: AgentState) -> str:
    if state.is_withdrawn:
        return "withdrawn"
    if state.status == "True":
        return "alive"
    return "missing" if state.reason == Reason.LEASE_MISSING else "silent"
