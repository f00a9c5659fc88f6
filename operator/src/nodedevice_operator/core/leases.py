"""Whether a node's agent lives, told by its Lease.

The age of a Lease is counted by our own monotonic clock from when its renewal was last seen to change, so that no two
clocks are compared; what was there at our first look counts from that look. Time in which we could not look is not counted.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api import names

from nodedevice_operator.core.records import LeaseRecord

# Looks further apart than this were interrupted: an agent may have renewed, or have been unable to, as we were.
_LONGEST_GAP_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class AgentState:
    """What AgentReady says of an agent: `status` True or Unknown, and why."""

    status: str
    reason: str
    message: str


ALIVE: Final = AgentState("True", names.Reason.LEASE_RENEWED, "the agent renews its Lease")
MISSING: Final = AgentState(
    "Unknown", names.Reason.LEASE_MISSING, "the agent has no Lease: look at the agent's pod on this node"
)


def expired(seconds: int) -> AgentState:
    """State of an agent whose Lease was not renewed for longer than its `seconds`."""
    message = f"the agent has not renewed its Lease for more than {seconds} s: look at the agent's pod on this node"
    return AgentState("Unknown", names.Reason.LEASE_EXPIRED, message)


@dataclass(frozen=True, slots=True)
class _Seen:
    renewed: str
    duration_seconds: int
    changed_at: float


@dataclass(frozen=True, slots=True)
class LeaseBook:
    """All Leases as of the last look, each with the time at which it last changed (monotonic seconds)."""

    looked_at: float | None = None
    leases: Mapping[str, _Seen] = field(default_factory=dict)

    def look(self, found: Mapping[str, LeaseRecord], now: float) -> "LeaseBook":
        """The book after a whole, successful listing."""
        gap = now - self.looked_at if self.looked_at is not None else 0.0
        uncounted = gap if gap > _LONGEST_GAP_SECONDS else 0.0
        return LeaseBook(now, {name: self._seen(name, lease, now, uncounted) for name, lease in found.items()})

    def state(self, node: str) -> AgentState:
        """State of that node's agent as of the last look."""
        seen = self.leases.get(node)
        if seen is None or self.looked_at is None:
            return MISSING
        if self.looked_at - seen.changed_at > seen.duration_seconds:
            return expired(seen.duration_seconds)
        return ALIVE

    def changes_since(self, before: "LeaseBook") -> frozenset[str]:
        """Nodes whose agent's state is another than in `before`."""
        nodes = self.leases.keys() | before.leases.keys()
        return frozenset(node for node in nodes if self.state(node) != before.state(node))

    def _seen(self, name: str, lease: LeaseRecord, now: float, uncounted: float) -> _Seen:
        known = self.leases.get(name)
        if known is None or known.renewed != lease.renewed:
            return _Seen(lease.renewed, lease.duration_seconds, now)
        return replace(known, duration_seconds=lease.duration_seconds, changed_at=known.changed_at + uncounted)
