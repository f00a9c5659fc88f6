"""Which pods were created before a resource name was in the policy, and when to retry to annotate them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_api import names
from nodedevice_common.pacing import exponential_seconds

from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.objects.unwatched import PodRecord
from nodedevice_operator.requiredplugins.policy import is_annotated

# A user may write 256 KiB of annotations into a pod, and create many pods: longer annotations are not read. Passing an annotated
# pod through admission again is harmless.
_LONGEST_READ: Final = 1024

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 15.0
# with the delays between: some 30 s, or 5 minutes where the API server asks each time to come back in one
_MOST_FAILURES: Final = 6


@dataclass(frozen=True, slots=True)
class AnnotationFailure:
    """pod: None if the list failed. resources: the affected ones, and maybe others. is_transient: whether a retry may work.

    is_unreachable: the API server does not respond, possibly for long. retry_after_seconds: how long it asks to wait.
    """

    problem: str
    resources: frozenset[str]
    pod: PodRecord | None = None
    is_transient: bool = False
    is_unreachable: bool = False
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tries:
    """How many tries failed for one resource, and when the next is due (monotonic seconds)."""

    failures: int = 0
    next_at: float = 0.0


def to_annotate(pods: Iterable[PodRecord], resources: frozenset[str]) -> tuple[PodRecord, ...]:
    """The pods that ask for one of these resources and may not wait for their agent yet."""
    return tuple(
        pod
        for pod in pods
        if not pod.is_ending and pod.asks_for & resources and not is_annotated(pod.annotations, longest=_LONGEST_READ)
    )


def next_tries(tried: Mapping[str, Tries], troubles: Iterable[AnnotationFailure], now: float) -> dict[str, Tries]:
    """The resources to retry; the others are done, or were tried often enough. tried: just tried. now: monotonic seconds."""
    transient: dict[str, list[AnnotationFailure]] = defaultdict(list)
    for trouble in troubles:
        for resource in trouble.resources & tried.keys() if trouble.is_transient else ():
            transient[resource].append(trouble)
    tries = {resource: _after(tried[resource], found, now) for resource, found in transient.items()}
    return {resource: each for resource, each in tries.items() if each.failures < _MOST_FAILURES}


def _after(tries: Tries, troubles: list[AnnotationFailure], now: float) -> Tries:
    failures = tries.failures + (not any(each.is_unreachable for each in troubles))
    delay = exponential_seconds(failures, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
    return Tries(failures, now + max(delay, *(each.retry_after_seconds for each in troubles)))


def advertised(records: Iterable[NodeDeviceRecord]) -> frozenset[str]:
    """Resources that we advertise on some Node, whose pending pods were therefore annotated before."""
    return frozenset(
        record.resource
        for record in records
        if record.delivery == names.DELIVERY_NRI
        and record.is_condition(names.Condition.ADVERTISED, "True")
        and record.conditions[names.Condition.ADVERTISED].reason not in names.NEVER_WRITTEN
    )
