"""Whether a node's agent lives, told by its Lease; and when a silent one's free devices are withdrawn.

The age of a Lease is counted by our own monotonic clock from when its renewal was last seen to change, so that no two
clocks are compared; what was there at our first look counts from that look. Time in which we could not look is not counted.
A Lease that is gone is one that is not renewed: somebody may have deleted it, and its agent makes it anew when it renews next.

One agent that falls silent is its own trouble. Many within a minute are ours: an API server that takes no renewals, a network that
is cut; then it is told, and nothing is withdrawn. core.outages says how many are many.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.agents.outages import fallen_together
from nodedevice_operator.objects.lease import LeaseRecord

# Looks further apart than this were interrupted: an agent may have renewed, or have been unable to, as we were.
_LONGEST_GAP_SECONDS: Final = 30.0
# As long as a kubelet keeps the devices of a plugin that has gone.
GRACE_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True)
class AgentState:
    """What AgentReady says of an agent: `status` True or Unknown, and why.

    is_withdrawn: what it has to offer is offered no more, but for what pods hold.
    """

    status: str
    reason: str
    message: str
    is_withdrawn: bool = False


ALIVE: Final = AgentState("True", names.Reason.LEASE_RENEWED, "the agent renews its Lease")
MISSING: Final = AgentState(
    "Unknown", names.Reason.LEASE_MISSING, "the agent has no Lease: look whether it runs on this node, and its log"
)


def expired(seconds: int, *, together: bool = False, is_gone: bool = False) -> AgentState:
    """State of an agent whose Lease was not renewed for longer than its `seconds`.

    together: nor were many others' at that time. is_gone: there is no such Lease any more.
    """
    if together:
        message = (
            f"the agent has not renewed its Lease for more than {seconds} s, and many others neither: "
            "look at the API server and the network; nothing is withdrawn"
        )
        return AgentState("Unknown", names.Reason.LEASES_EXPIRED_TOGETHER, message)
    gone = ", which is gone," if is_gone else ""
    message = (
        f"the agent has not renewed its Lease{gone} for more than {seconds} s: "
        "look whether it runs on this node, and its log"
    )
    return AgentState("Unknown", names.Reason.LEASE_EXPIRED, message)


@dataclass(frozen=True, slots=True)
class Told:
    """What the API tells of an agent that had a Lease, before we look at it ourselves."""

    is_alive: bool
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class _Seen:
    """A Lease. silent_since: when it was found to have run out. grace_from: when its grace began (monotonic)."""

    renewed: str
    duration_seconds: int
    changed_at: float
    silent_since: float | None = None
    grace_from: float = 0.0
    is_gone: bool = False
    is_withdrawn: bool = False


@dataclass(frozen=True, slots=True)
class LeaseBook:
    """All Leases as of the last look. `outage`: nodes whose agents fell silent together with too many others."""

    grace_seconds: float = GRACE_SECONDS
    looked_at: float | None = None
    leases: Mapping[str, _Seen] = field(default_factory=dict)
    outage: frozenset[str] = frozenset()

    def look(
        self,
        found: Mapping[str, LeaseRecord],
        now: float,
        nodes: frozenset[str],
        told: Mapping[str, Told] | None = None,
    ) -> "LeaseBook":
        """The book after a whole, successful listing.

        nodes: those with NodeDevices; only of these anything is concluded.
        told: what is stored of agents whose Lease we never saw. A restart of ours is no sign of life of theirs, and a Lease that
        is not there may have been there before.
        """
        gap = now - self.looked_at if self.looked_at is not None else 0.0
        uncounted = gap if gap > _LONGEST_GAP_SECONDS else 0.0
        before = {name: _as_told(said, found.get(name), now) for name, said in (told or {}).items()}
        before |= {name: _later(known, uncounted) for name, known in self.leases.items()}
        seen = {name: _seen(before.get(name), lease, now) for name, lease in found.items()}
        # one that never was cannot run out
        seen |= {name: replace(before[name], is_gone=True) for name in (before.keys() - found.keys()) & nodes}
        for name in seen.keys() - nodes:
            # its Node is gone, or not there yet: what comes under this name begins without a past
            seen[name] = replace(seen[name], silent_since=None, is_withdrawn=False)
        return self._judge(seen, now, nodes)

    def knows(self, node: str) -> bool:
        """Whether that node's agent has a Lease, or had one."""
        return node in self.leases

    def state(self, node: str) -> AgentState:
        """State of that node's agent as of the last look."""
        seen = self.leases.get(node)
        if seen is None or self.looked_at is None:
            return MISSING
        if seen.silent_since is None and self.looked_at - seen.changed_at <= seen.duration_seconds:
            return ALIVE
        state = expired(seen.duration_seconds, together=node in self.outage, is_gone=seen.is_gone)
        return replace(state, is_withdrawn=seen.is_withdrawn)

    def changes_since(self, before: "LeaseBook") -> frozenset[str]:
        """Nodes whose agent's state is another than in `before`."""
        nodes = self.leases.keys() | before.leases.keys()
        return frozenset(node for node in nodes if self.state(node) != before.state(node))

    def _judge(self, seen: dict[str, _Seen], now: float, nodes: frozenset[str]) -> "LeaseBook":
        """Find who fell silent now, who did so together, and whose grace is over."""
        for name in seen.keys() & nodes:
            lease = seen[name]
            if lease.silent_since is None and now - lease.changed_at > lease.duration_seconds:
                seen[name] = replace(lease, silent_since=now, grace_from=now)
        undecided = {name: lease for name, lease in seen.items() if name in nodes and not lease.is_withdrawn}
        silent = {name: lease.silent_since for name, lease in undecided.items() if lease.silent_since is not None}
        outage = fallen_together(silent, len(undecided))
        for name in silent:
            if name in outage:
                # the grace of those who stay silent begins when the outage is over
                seen[name] = replace(seen[name], grace_from=now)
            elif now - seen[name].grace_from >= self.grace_seconds:
                seen[name] = replace(seen[name], is_withdrawn=True)
        return LeaseBook(self.grace_seconds, now, seen, outage)


def _as_told(told: Told, lease: LeaseRecord | None, now: float) -> _Seen:
    """A Lease at our first look at it, there or not, as what is stored tells of it."""
    renewed, seconds = (lease.renewed, lease.duration_seconds) if lease else ("", names.AGENT_LEASE_SECONDS)
    if told.is_alive:
        return _Seen(renewed, seconds, now)
    return _Seen(renewed, seconds, now, silent_since=now, grace_from=now, is_withdrawn=told.is_withdrawn)


def _seen(known: _Seen | None, lease: LeaseRecord, now: float) -> _Seen:
    if known is None or known.renewed != lease.renewed:
        return _Seen(lease.renewed, lease.duration_seconds, now)
    return replace(known, duration_seconds=lease.duration_seconds, is_gone=False)


def _later(known: _Seen, uncounted: float) -> _Seen:
    """`known`, as if the time in which nobody could look had not been."""
    if not uncounted:
        return known
    return replace(
        known,
        changed_at=known.changed_at + uncounted,
        silent_since=_plus(known.silent_since, uncounted),
        grace_from=known.grace_from + uncounted,
    )


def _plus(moment: float | None, seconds: float) -> float | None:
    return None if moment is None else moment + seconds


def as_told(state: AgentState, *, was_withdrawn: bool) -> AgentState:
    """What holds of an agent whose free devices were withdrawn already, by this operator or another: only its return ends that."""
    return replace(state, is_withdrawn=True) if was_withdrawn and state.status != "True" else state
