"""Whether a node's agent lives, by its Lease; and when the free devices of a silent one are withdrawn.

The age of a Lease is measured by our own monotonic clock from when its renewal was last seen to change, so that no two clocks are
compared; a Lease in the first list counts from that list. Time in which no list was possible is not counted. A Lease that is gone
is one that is not renewed: a user may have deleted it, and its agent recreates it when it renews next.

One agent that falls silent has a problem of its own. Many within a minute are an outage: an API server that takes no renewals, a
network partition. Then it is reported, and nothing is withdrawn. Within a minute, as a Lease lasts one: agents that are cut off at
the same moment expire up to 22 s apart, as each renewed at its own time, and we poll every 10 s. Many are more than a fifth of the
agents that are not withdrawn yet, and at least two: 2 of 1 to 9 agents, 3 of 10, 21 of 100, 1,001 of 5,000.

Two nodes of a small cluster may also break at the same time. For an agent that is silent for ten graces the outage is over while
more than half of the agents renew: most of the cluster works, and pods must not be sent to a node that is cut off for so long.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api import names
from nodedevice_api.names import Condition, Reason

from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.unwatched import LeaseRecord

# Between lists further apart than this an agent may have renewed, or have been as unable to as we were.
_LONGEST_GAP_SECONDS: Final = 30.0
# As long as a kubelet keeps the devices of a plugin that has gone.
GRACE_SECONDS: Final = 300.0

OUTAGE_WINDOW_SECONDS: Final = 60.0
_OUTAGE_SHARE: Final = 0.2
_SMALLEST_OUTAGE: Final = 2
# Of agents that stay silent while most renew. A shorter grace than the default makes it no shorter.
_LONGEST_OUTAGE_GRACES: Final = 10


@dataclass(frozen=True, slots=True)
class AgentState:
    """`status`: True or Unknown. is_withdrawn: its free devices are withdrawn, only allocated ones count."""

    status: str
    reason: str
    message: str
    is_withdrawn: bool = False


_REMEDY: Final = "check whether it runs on this node, and its log"
ALIVE: Final = AgentState("True", Reason.LEASE_RENEWED, "the agent renews its Lease")
MISSING: Final = AgentState("Unknown", Reason.LEASE_MISSING, f"the agent has no Lease: {_REMEDY}")


def expired(seconds: int, *, together: bool = False, is_gone: bool = False) -> AgentState:
    """Not renewed for longer than its `seconds`. together: nor are many others. is_gone: the Lease does not exist any more."""
    if together:
        message = (
            f"the agent has not renewed its Lease for more than {seconds} s, and neither have many others: "
            "check the API server and the network; no devices are withdrawn"
        )
        return AgentState("Unknown", Reason.LEASES_EXPIRED_TOGETHER, message)
    gone = ", which is gone," if is_gone else ""
    message = f"the agent has not renewed its Lease{gone} for more than {seconds} s: {_REMEDY}"
    return AgentState("Unknown", Reason.LEASE_EXPIRED, message)


@dataclass(frozen=True, slots=True)
class StoredAgent:
    """What the API stores of an agent that had a Lease, from before our first list."""

    is_alive: bool
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class _SeenLease:
    """silent_since: when it was found expired. grace_from: when its grace began (monotonic seconds)."""

    renewed: str
    duration_seconds: int
    changed_at: float
    silent_since: float | None = None
    grace_from: float = 0.0
    is_gone: bool = False
    is_withdrawn: bool = False
    version: int = 0


@dataclass(frozen=True, slots=True)
class LeaseTable:
    """All Leases as of the last list. `outage`: nodes whose agents fell silent together with too many others."""

    grace_seconds: float = GRACE_SECONDS
    listed_at: float | None = None
    leases: Mapping[str, _SeenLease] = field(default_factory=dict)
    outage: frozenset[str] = frozenset()

    def is_newer_than(self, found: Mapping[str, LeaseRecord]) -> bool:
        """Whether a list has an older Lease: from a server that lags or was restored. Its renewals prove nothing."""
        return any(lease.version < self.leases[node].version for node, lease in found.items() if node in self.leases)

    def updated(
        self,
        found: Mapping[str, LeaseRecord],
        now: float,
        nodes: frozenset[str],
        stored: Mapping[str, StoredAgent] | None = None,
    ) -> "LeaseTable":
        """The table after a whole, successful list: not older than the last, or a consistent one.

        nodes: nodes with NodeDevices; others are not judged.
        stored: the stored state of agents whose Lease was never seen. A restart of the operator does not prove that an agent lives,
        and a missing Lease may have existed before.
        """
        gap = now - self.listed_at if self.listed_at is not None else 0.0
        uncounted = gap if gap > _LONGEST_GAP_SECONDS else 0.0
        before = {name: _from_stored(agent, found.get(name), now) for name, agent in (stored or {}).items()}
        before |= {name: _later(known, uncounted) for name, known in self.leases.items()}
        seen = {name: _seen(before.get(name), lease, now) for name, lease in found.items()}
        # a Lease that never existed cannot expire
        seen |= {name: replace(before[name], is_gone=True) for name in (before.keys() - found.keys()) & nodes}
        for name in seen.keys() - nodes:
            # its Node is gone, or does not exist yet: the next Node of this name starts without history
            seen[name] = replace(seen[name], silent_since=None, is_withdrawn=False)
        return self._judged(seen, now, nodes)

    def state(self, node: str) -> AgentState:
        seen = self.leases.get(node)
        if seen is None or self.listed_at is None:
            return MISSING
        if seen.silent_since is None and self.listed_at - seen.changed_at <= seen.duration_seconds:
            return ALIVE
        state = expired(seen.duration_seconds, together=node in self.outage, is_gone=seen.is_gone)
        return replace(state, is_withdrawn=seen.is_withdrawn)

    def changes_since(self, before: "LeaseTable") -> frozenset[str]:
        return frozenset(n for n in self.leases.keys() | before.leases.keys() if self.state(n) != before.state(n))

    def _judged(self, seen: dict[str, _SeenLease], now: float, nodes: frozenset[str]) -> "LeaseTable":
        """Marks the agents that fell silent now, the ones that did so together, and the ones whose grace is over."""
        for name in seen.keys() & nodes:
            lease = seen[name]
            if lease.silent_since is None and now - lease.changed_at > lease.duration_seconds:
                seen[name] = replace(lease, silent_since=now, grace_from=now)
        undecided = {name: lease for name, lease in seen.items() if name in nodes and not lease.is_withdrawn}
        silent = {name: lease.silent_since for name, lease in undecided.items() if lease.silent_since is not None}
        outage = silent_together(silent, len(undecided))
        if 2 * len(silent) < len(undecided):
            longest = _LONGEST_OUTAGE_GRACES * max(self.grace_seconds, GRACE_SECONDS)
            outage = frozenset(name for name in outage if now - silent[name] < longest)
        for name in silent:
            if name in outage:
                # the grace of agents that stay silent begins when the outage is over
                seen[name] = replace(seen[name], grace_from=now)
            elif now - seen[name].grace_from >= self.grace_seconds:
                seen[name] = replace(seen[name], is_withdrawn=True)
        return LeaseTable(self.grace_seconds, now, seen, outage)


def silent_together(silent_since: Mapping[str, float], agents: int) -> frozenset[str]:
    """Nodes whose agents fell silent (monotonic seconds) within a minute of too many others. agents: how many there are."""
    moments = sorted(silent_since.values())

    def is_outage(moment: float) -> bool:
        last, first = moment + OUTAGE_WINDOW_SECONDS, moment - OUTAGE_WINDOW_SECONDS
        count = bisect_right(moments, last) - bisect_left(moments, first)
        return count >= _SMALLEST_OUTAGE and count > agents * _OUTAGE_SHARE

    return frozenset(node for node, moment in silent_since.items() if is_outage(moment))


def _from_stored(stored: StoredAgent, lease: LeaseRecord | None, now: float) -> _SeenLease:
    """A Lease in the first list, or missing from it, with the stored state of its agent."""
    lease = lease or LeaseRecord("", names.AGENT_LEASE_SECONDS)
    silent_since = None if stored.is_alive else now
    return _SeenLease(
        lease.renewed,
        lease.duration_seconds,
        now,
        silent_since,
        now,
        is_withdrawn=stored.is_withdrawn,
        version=lease.version,
    )


def _seen(known: _SeenLease | None, lease: LeaseRecord, now: float) -> _SeenLease:
    if known is None or known.renewed != lease.renewed:
        return _SeenLease(lease.renewed, lease.duration_seconds, now, version=lease.version)
    return replace(known, duration_seconds=lease.duration_seconds, is_gone=False, version=lease.version)


def _later(known: _SeenLease, uncounted: float) -> _SeenLease:
    """`known`, with its times moved by the time that is not counted."""
    if not uncounted:
        return known
    return replace(
        known,
        changed_at=known.changed_at + uncounted,
        silent_since=None if known.silent_since is None else known.silent_since + uncounted,
        grace_from=known.grace_from + uncounted,
    )


_EXPIRED: Final = frozenset({Reason.LEASE_EXPIRED, Reason.LEASES_EXPIRED_TOGETHER})


def stored_state(records: Iterable[NodeDeviceRecord]) -> AgentState | None:
    """The agent's state in its NodeDevices' conditions; a silent one wins. Each resource itself stores whether it is withdrawn."""
    found: AgentState | None = None
    for record in records:
        stored = record.conditions.get(Condition.AGENT_READY)
        if stored is not None and (found is None or stored.status != "True"):
            found = AgentState(stored.status, stored.reason, stored.message)
    return found


def stored_agents(records: Iterable[NodeDeviceRecord]) -> dict[str, StoredAgent]:
    """The stored state of agents that have, or had, a Lease, by node; silence wins."""
    found: dict[str, StoredAgent] = {}
    for record in records:
        stored = record.conditions.get(Condition.AGENT_READY)
        if stored is None:
            continue
        if stored.status == "True":
            found.setdefault(record.node, StoredAgent(is_alive=True))
        elif stored.reason in _EXPIRED:
            is_withdrawn = record.reason_of(Condition.ADVERTISED) == Reason.FREE_WITHDRAWN
            before = found.get(record.node)
            found[record.node] = StoredAgent(False, is_withdrawn or (before is not None and before.is_withdrawn))
    return found
