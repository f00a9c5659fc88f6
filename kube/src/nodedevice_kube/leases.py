"""A Lease, and whether its holder is still there. Pure.

No two clocks are compared: each reader measures by its own clock how long a Lease is unchanged, from when it saw the last change.
Source: coordination.k8s.io/v1 Lease, and k8s.io/client-go tools/leaderelection @ 1.37.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Lease:
    """A stored Lease. holder "": it has no holder; version "": it does not exist. renewed and acquired are the API's own text."""

    holder: str = ""
    renewed: str = ""
    acquired: str = ""
    duration_seconds: int = 0
    transitions: int = 0
    version: str = ""


def lease_of(found: Mapping[str, Any]) -> Lease:
    """From an object of the API server. A field of another type counts as absent."""
    metadata, spec = _mapping(found.get("metadata")), _mapping(found.get("spec"))
    return Lease(
        holder=_text(spec.get("holderIdentity")),
        renewed=_text(spec.get("renewTime")),
        acquired=_text(spec.get("acquireTime")),
        duration_seconds=_number(spec.get("leaseDurationSeconds")),
        transitions=_number(spec.get("leaseTransitions")),
        version=_text(metadata.get("resourceVersion")),
    )


def spec_of(lease: Lease) -> dict[str, Any]:
    """The spec to write. Empty times are left out, as the API server refuses them."""
    times = {"acquireTime": lease.acquired, "renewTime": lease.renewed}
    return {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.duration_seconds,
        "leaseTransitions": lease.transitions,
        **{key: value for key, value in times.items() if value},
    }


@dataclass(slots=True)
class Sighting:
    """The last seen Lease, and since when it is unchanged, in monotonic seconds of one reader."""

    lease: Lease = field(default_factory=Lease)
    unchanged_since: float = 0.0
    _is_first: bool = True

    def saw(self, lease: Lease, now: float) -> None:
        """After each read of the Lease. Another holder, or another time of renewal, is a change."""
        before = (self.lease.holder, self.lease.renewed)
        if self._is_first or (lease.holder, lease.renewed) != before:
            self.unchanged_since = now
        self.lease, self._is_first = lease, False

    def expires_in_seconds(self, now: float, default_seconds: float, longest_seconds: float = float("inf")) -> float:
        """Until it counts as expired; 0.0 or less once it does. default_seconds: where the Lease states no duration."""
        stated = min(self.lease.duration_seconds or default_seconds, longest_seconds)
        return self.unchanged_since + stated - now


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _text(found: Any) -> str:
    return found if isinstance(found, str) else ""


def _number(found: Any) -> int:
    return found if isinstance(found, int) and not isinstance(found, bool) else 0
