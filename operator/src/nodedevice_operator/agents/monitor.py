"""Looks at the agents' Leases from time to time, asks for a look at each node whose agent came or went, and tells what agents tell
on them.

A whole listing each time, from the API server's watch cache: a watch would bring every renewal of every agent. The first is
made when all NodeDevices are known, as what they tell of their agents outlives a restart of ours. It is believed until a listing
succeeds: that the API server does not give us the Leases says nothing about the agents.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from nodedevice_api.names import Condition, Reason

from nodedevice_operator.agents.api import AgentsApi
from nodedevice_operator.agents.liveness import ALIVE, GRACE_SECONDS, MISSING, AgentState, LeaseBook
from nodedevice_operator.agents.stored_state import stored_state, told_agents
from nodedevice_operator.errors import ApiError, Unavailable
from nodedevice_operator.events.transitions import NORMAL, WARNING, About, Event, EventReason, about_node
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.lease import LeaseRecord
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

log = logging.getLogger(__name__)

INTERVAL_SECONDS: Final = 10.0
# The agent of a new node makes its Lease about when it makes its NodeDevices: so long the looks are closer together.
_CLOSE_INTERVAL_SECONDS: Final = 1.0
_CLOSE_LOOKS: Final = 20

_OUTAGE: Final = "ManyAgentLeasesExpired"
_OUTAGE_ENDED: Final = "ManyAgentLeasesExpiredEnded"


class LeaseWatch:
    """The book of Leases, and the task that keeps it. `post` is given what is to be told of many agents at once."""

    def __init__(
        self,
        api: AgentsApi,
        cache: Cache,
        touch: Callable[[str], None],
        metrics: Metrics,
        post: Callable[[Event], None],
        grace_seconds: float = GRACE_SECONDS,
        interval_seconds: float = INTERVAL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._api = api
        self._cache = cache
        self._touch = touch
        self._metrics = metrics
        self._post = post
        self._book = LeaseBook(grace_seconds)
        self._missing: dict[str, int] = {}
        # by node, where there are any: what its agent said when it was last looked at
        self._refusals: dict[str, frozenset[str]] = {}
        self._sooner = asyncio.Event()
        # whether it was tried: numbers need not wait until it succeeds
        self.has_looked = False

    def state(self, node: str) -> AgentState:
        """State of that node's agent; asks for a look soon when it has no Lease that we know of."""
        return self._state(node, self._cache.node_devices.of_node(node))

    def state_for(self, record: NodeDeviceRecord) -> AgentState:
        """The same for one NodeDevice. Where only what is stored tells of the agent, its own words count."""
        own = [record] if Condition.AGENT_READY in record.conditions else self._cache.node_devices.of_node(record.node)
        return self._state(record.node, own)

    def spoke(self, node: str) -> None:
        """Something of that node's agent changed: if it was silent, it is looked for its Lease soon."""
        if self._book.state(node).status != "True":
            self._sooner.set()

    async def work(self) -> None:
        """Look, wait, and so on, for ever."""
        await self._cache.whole.wait()
        while True:
            try:
                await self._look()
            except ApiError as error:
                log.debug("Leases not listed", extra={"problem": str(error)})
                if not self.has_looked:
                    self._begin()
                await asyncio.sleep(self._retry_seconds(error))
            else:
                await self._pause(self._interval())

    async def _look(self) -> None:
        """Raises ApiError; then nothing is concluded."""
        found = await self._api.list_leases()
        nodes = self._cache.node_devices.nodes()
        before = self._book
        never_seen = [node for node in nodes if not before.knows(node)]
        told = told_agents(record for node in never_seen for record in self._cache.node_devices.of_node(node))
        self._book = before.look(found, self._clock(), nodes, told)
        self._tell(before, nodes)
        self._tell_refusals(found, is_first=before.looked_at is None)
        if before.looked_at is None:
            self._begin()
        else:
            for node in self._book.changes_since(before) & nodes:
                self._touch(node)
        self._count_missing(nodes)

    def _begin(self) -> None:
        """Have every node looked at: until now none was, and from now on what is stored is believed, or what was found."""
        self.has_looked = True
        for node in self._cache.names_of_nodes():
            self._touch(node)

    def _interval(self) -> float:
        """How long to wait for the next look, in seconds."""
        is_close = self._book.looked_at is None or any(looks < _CLOSE_LOOKS for looks in self._missing.values())
        return min(_CLOSE_INTERVAL_SECONDS, self._interval_seconds) if is_close else self._interval_seconds

    def _retry_seconds(self, error: ApiError) -> float:
        asked = error.retry_after_seconds if isinstance(error, Unavailable) else None
        return max(self._interval(), asked or 0.0)

    def _state(self, node: str, records: Iterable[NodeDeviceRecord]) -> AgentState:
        if self._book.knows(node):
            return self._book.state(node)
        stored = stored_state(records)
        if self._book.looked_at is None:
            return stored or ALIVE
        if stored is not None and stored.reason != Reason.LEASE_MISSING:
            return stored  # by another operator, since our last look: the next one tells
        if node not in self._missing and self._cache.node_devices.is_about(node):
            self._missing[node] = 0
            self._sooner.set()
        return MISSING

    def _tell(self, before: LeaseBook, nodes: frozenset[str]) -> None:
        """Count the agents, and say when too many fell silent together, and when that is over."""
        states = [self._book.state(node) for node in nodes]
        counts = Counter(_word(state) for state in states)
        for word in ("alive", "silent", "withdrawn", "missing"):
            self._metrics.agents.labels(state=word).set(counts[word])
        self._metrics.agent_outage.set(len(self._book.outage))
        if bool(self._book.outage) == bool(before.outage):
            return
        about = About("v1", "Namespace", "", self._api.leases_namespace, "")
        if self._book.outage:
            numbers = f"{len(self._book.outage)} of {len(nodes)} agents"
            log.error("many agents are silent; nothing is withdrawn", extra={"agents": numbers})
            message = f"{numbers} stopped renewing their Leases at about the same time; nothing of theirs is withdrawn"
            self._post(Event(about, WARNING, _OUTAGE, f"{message}: look at the API server and the network"))
        else:
            log.info("not many agents are silent any more", extra={"silent": counts["silent"]})
            message = f"{counts['alive']} of {len(nodes)} agents renew their Leases"
            self._post(Event(about, NORMAL, _OUTAGE_ENDED, message))

    def _tell_refusals(self, found: Mapping[str, LeaseRecord], *, is_first: bool) -> None:
        """Those that are new. What was there before we looked has been told."""
        known = self._refusals
        self._refusals = {}
        for name, lease in found.items():
            node = self._cache.nodes.get(name) if lease.refusals else None
            if node is None:
                continue
            self._refusals[name] = frozenset(lease.refusals)
            for refusal in sorted(self._refusals[name] - known.get(name, frozenset())) if not is_first else ():
                message = f"a device plugin's registration was refused: {refusal}"
                self._post(Event(about_node(node), WARNING, EventReason.REGISTRATION_REFUSED, message))

    def _count_missing(self, nodes: frozenset[str]) -> None:
        self._missing = {
            node: looks + 1
            for node, looks in self._missing.items()
            if node in nodes and self._book.state(node) == MISSING
        }

    async def _pause(self, seconds: float) -> None:
        """Wait; cut short when a node without a Lease turns up, but never below the close interval."""
        try:
            async with asyncio.timeout(seconds):
                await self._sooner.wait()
        except TimeoutError:
            return
        await asyncio.sleep(_CLOSE_INTERVAL_SECONDS / 4)
        self._sooner.clear()


def _word(state: AgentState) -> str:
    if state.is_withdrawn:
        return "withdrawn"
    if state.status == "True":
        return "alive"
    return "missing" if state.reason == Reason.LEASE_MISSING else "silent"
