"""A Lease, and whether its holder is alive. Pure.

Clocks are never compared: each reader measures by its own clock how long a Lease has been unchanged.
Source: coordination.k8s.io/v1 Lease, and k8s.io/client-go tools/leaderelection @ 1.37.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nodedevice_kube.fields import number_of, text_of


class Lease(NamedTuple):
    """A stored Lease. holder "": it has none. version "": it does not exist. renewed and acquired are the API's own text."""

    holder: str = ""
    renewed: str = ""
    acquired: str = ""
    duration_seconds: int = 0
    transitions: int = 0
    version: str = ""


def lease_of(found: Mapping[str, Any]) -> Lease:
    """Decode a Lease. A field of another type counts as absent."""
    return Lease(
        holder=text_of(found, "spec", "holderIdentity"),
        renewed=text_of(found, "spec", "renewTime"),
        acquired=text_of(found, "spec", "acquireTime"),
        duration_seconds=number_of(found, "spec", "leaseDurationSeconds"),
        transitions=number_of(found, "spec", "leaseTransitions"),
        version=text_of(found, "metadata", "resourceVersion"),
    )


def spec_of(lease: Lease) -> dict[str, Any]:
    """Return the spec to write. The API server refuses empty times."""
    times = {"acquireTime": lease.acquired, "renewTime": lease.renewed}
    return {
        "holderIdentity": lease.holder,
        "leaseDurationSeconds": lease.duration_seconds,
        "leaseTransitions": lease.transitions,
        **{key: value for key, value in times.items() if value},
    }


class Sighting:
    """The last seen Lease. unchanged_since: monotonic seconds of one reader."""

    __slots__ = ("_is_first", "lease", "unchanged_since")

    def __init__(self) -> None:
        self.lease = Lease()
        self.unchanged_since = 0.0
        self._is_first = True

    def saw(self, lease: Lease, now: float) -> None:
        """Note a read Lease. Another holder, or another time of renewal, is a change."""
        before = (self.lease.holder, self.lease.renewed)
        if self._is_first or (lease.holder, lease.renewed) != before:
            self.unchanged_since = now
        self.lease, self._is_first = lease, False

    def expires_in_seconds(self, now: float, default_seconds: float, longest_seconds: float = float("inf")) -> float:
        """Return the time until it expires; 0.0 or less afterwards. default_seconds: if the Lease states no duration."""
        stated = min(self.lease.duration_seconds or default_seconds, longest_seconds)
        return self.unchanged_since + stated - now
