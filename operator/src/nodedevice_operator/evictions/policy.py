"""Which pods are to be evicted because of a device, and when: one that broke while held, or one that its container runs without.

Only where the policy of the resource says so; the default is to report. A blip is waited out, a pod is evicted once, a refusal
is tried again later and later, and all of it at a bounded rate, so that a plugin gone mad empties no cluster.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from nodedevice_common.backoff import exponential_seconds

from nodedevice_operator.events.aggregate import some
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

Policy = Literal["report", "evict"]
ANY_RESOURCE: Final = "*"

FIRST_RETRY_SECONDS: Final = 10.0
LONGEST_RETRY_SECONDS: Final = 300.0
# So many may go at once before the rate counts.
BURST: Final = 3


@dataclass(frozen=True, slots=True)
class Sufferer:
    """A pod and what is wrong with its devices, one sentence."""

    namespace: str
    name: str
    uid: str
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Case:
    """What is remembered of a pod. Times are monotonic seconds; next_at None: nothing more is to be done."""

    since: float
    next_at: float | None
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Book:
    """All cases by pod UID, and how many evictions may be sent now (a bucket that fills with time)."""

    cases: Mapping[str, Case]
    tokens: float = float(BURST)
    filled_at: float = 0.0


def policy_of(resource: str, policies: Mapping[str, Policy]) -> Policy:
    """Policy of that resource: its own, else that of `*`, else report."""
    return policies.get(resource, policies.get(ANY_RESOURCE, "report"))


def sufferers(records: Iterable[NodeDeviceRecord], policies: Mapping[str, Policy]) -> dict[str, Sufferer]:
    """Pods to be evicted, by UID, whatever was tried before."""
    found: dict[str, Sufferer] = {}
    for record in records:
        if policy_of(record.resource, policies) != "evict":
            continue
        for allocation in record.allocations:
            why = _broken(record, allocation.device_ids) if not allocation.is_releasing else None
            if allocation.not_injected:
                why = f"container {allocation.container} runs without its devices of {record.resource}"
            if why is not None and allocation.namespace and allocation.name:
                pod = allocation.pod_uid
                found.setdefault(pod, Sufferer(allocation.namespace, allocation.name, pod, record.node, why))
        for waiting in record.waiting:
            if waiting.not_injected and waiting.namespace and waiting.name:
                why = f"container {waiting.container} runs without its devices of {record.resource}"
                pod = waiting.pod_uid
                found.setdefault(pod, Sufferer(waiting.namespace, waiting.name, pod, record.node, why))
    return found


def look(book: Book, found: Iterable[str], now: float, *, delay_seconds: float, per_minute: float) -> Book:
    """The book after a look: new cases wait for the delay, those that are over are forgotten, and the bucket fills."""
    cases = {uid: book.cases.get(uid, Case(now, now + delay_seconds)) for uid in found}
    passed = max(0.0, now - book.filled_at) if book.filled_at else 0.0
    return Book(cases, min(float(BURST), book.tokens + passed * per_minute / 60), now)


def due(book: Book, now: float) -> tuple[str, ...]:
    """UIDs of the pods to be evicted now, as many as the rate allows, those that have waited longest first."""
    ready = [(case.since, uid) for uid, case in book.cases.items() if case.next_at is not None and case.next_at <= now]
    return tuple(uid for _, uid in sorted(ready)[: int(book.tokens)])


def tried(book: Book, uid: str, now: float, *, is_refused: bool, retry_after_seconds: float | None = None) -> Book:
    """The book after an eviction was sent. is_refused: not now (a PodDisruptionBudget, or an API server that is busy)."""
    case = book.cases[uid]
    next_at = None
    if is_refused:
        pause = exponential_seconds(case.refusals, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
        next_at = now + max(pause, retry_after_seconds or 0.0)
    told = replace(case, next_at=next_at, refusals=case.refusals + is_refused)
    return replace(book, cases={**book.cases, uid: told}, tokens=book.tokens - 1)


def _broken(record: NodeDeviceRecord, device_ids: tuple[str, ...]) -> str | None:
    """What is wrong with these devices. A plugin that is away says nothing about its devices, and a missing one is not broken."""
    if record.endpoint != "Running":
        return None
    bad = [
        device_id
        for device_id in device_ids
        if (device := record.devices.get(device_id)) and device.health == "Unhealthy" and not device.is_missing
    ]
    return f"{some(bad)} of {record.resource} unhealthy" if bad else None
