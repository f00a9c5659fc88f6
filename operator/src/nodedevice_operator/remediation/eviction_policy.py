"""Which pods to evict because of a device, and when: one that broke in use, or that its container runs without or never gets.

Only where the policy of the resource asks for it; the default is to report. A short failure is waited out, a pod is evicted once, a
rejection is retried with growing delays, and all of it at a bounded rate, so that a faulty plugin does not empty a cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from nodedevice_api.nodedevice import Waiting
from nodedevice_common.pacing import TokenBucket, exponential_seconds

from nodedevice_operator.objects.nodedevice import AllocationRecord, NodeDeviceRecord
from nodedevice_operator.observability.aggregates import some

Policy = Literal["report", "evict"]
ANY_RESOURCE: Final = "*"

FIRST_RETRY_SECONDS: Final = 10.0
LONGEST_RETRY_SECONDS: Final = 300.0
# So many may go at once before the rate counts.
BURST: Final = 3


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    namespace: str
    name: str
    uid: str
    node: str
    why: str


@dataclass(slots=True)
class PendingEviction:
    """The state of a candidate. next_at None: it is done."""

    since: float
    next_at: float | None
    rejections: int = 0


class PendingEvictions:
    """By pod UID; monotonic seconds. delay_seconds: of a new candidate. per_minute: how many are sent after the first BURST."""

    def __init__(self, delay_seconds: float, per_minute: float, now: float) -> None:
        self._delay_seconds = delay_seconds
        self._bucket = TokenBucket(per_minute / 60, BURST, now)
        self.by_pod: dict[str, PendingEviction] = {}

    def update(self, found: Iterable[str], now: float) -> None:
        """After a check: new ones wait for the delay, and those without a candidate are forgotten."""
        new = now + self._delay_seconds
        self.by_pod = {uid: self.by_pod.get(uid) or PendingEviction(now, new) for uid in found}

    def due(self, now: float) -> Iterator[str]:
        """UIDs of the pods to evict now, as many as the rate allows, the longest waiting first."""
        ready = [(e.since, uid) for uid, e in self.by_pod.items() if e.next_at is not None and e.next_at <= now]
        for _, uid in sorted(ready):
            if not self._bucket.take(now):
                return
            yield uid

    def tried(self, uid: str, now: float, *, is_rejected: bool, retry_after_seconds: float = 0.0) -> None:
        """After one was sent. is_rejected: not now (a PodDisruptionBudget, or an API server that is busy)."""
        eviction = self.by_pod[uid]
        eviction.next_at = None
        if is_rejected:
            pause = exponential_seconds(eviction.rejections, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
            eviction.next_at = now + max(pause, retry_after_seconds)
            eviction.rejections += 1


def policy_of(resource: str, policies: Mapping[str, Policy]) -> Policy:
    """Policy of that resource: its own, else that of `*`, else report."""
    return policies.get(resource, policies.get(ANY_RESOURCE, "report"))


def candidates(records: Iterable[NodeDeviceRecord], policies: Mapping[str, Policy]) -> dict[str, EvictionCandidate]:
    """Pods to evict, by UID, regardless of earlier tries."""
    found: dict[str, EvictionCandidate] = {}
    for record in records:
        if record.is_only_shown or policy_of(record.resource, policies) != "evict":
            continue
        entries: tuple[AllocationRecord | Waiting, ...] = (*record.allocations, *record.waiting)
        for entry in entries:
            why = _why(record, entry)
            if why is not None and entry.namespace and entry.name:
                candidate = EvictionCandidate(entry.namespace, entry.name, entry.pod_uid, record.node, why)
                found.setdefault(entry.pod_uid, candidate)
    return found


def _why(record: NodeDeviceRecord, entry: AllocationRecord | Waiting) -> str | None:
    if entry.not_injected:
        return f"container {entry.container} runs without its devices of {record.resource}"
    if isinstance(entry, Waiting) and entry.final:
        return f"container {entry.container} never gets its devices of {record.resource} ({entry.reason})"
    if isinstance(entry, Waiting) or entry.is_releasing or record.endpoint != "Running":
        # a stopped plugin reports nothing about its devices
        return None
    held = ((device_id, record.devices.get(device_id)) for device_id in entry.devices)
    failed = {device_id: device for device_id, device in held if device is not None and device.has_failed}
    missing = [device_id for device_id, device in failed.items() if device.is_missing]
    unhealthy = [device_id for device_id in failed if device_id not in missing]
    causes = ((unhealthy, "unhealthy"), (missing, "no longer listed by the device plugin"))
    return ", ".join(f"{some(ids)} of {record.resource} {cause}" for ids, cause in causes if ids) or None
