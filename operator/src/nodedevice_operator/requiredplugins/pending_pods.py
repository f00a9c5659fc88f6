"""Which pods a new resource name comes too late for: they were made before it was in the policy of core.required_plugins.

Such a pod is admitted, asks for the name, waits for capacity, and has no mark; to bind it is no change that would mark it.
Says too how often and when it is tried again to have them marked. Values in, values out; sends nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from nodedevice_api import names
from nodedevice_common.backoff import exponential_seconds

from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.requiredplugins.policy import is_marked

_OVER = frozenset({"Succeeded", "Failed"})

# Whoever makes a pod may write 256 KiB, and make many: what is longer is not read for each of them in a row. To have such a pod
# admitted once more does no harm where it has the mark.
_LONGEST_READ: Final = 1024

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 15.0
# with the delays between: some 30 s, or 5 minutes where the API server says each time to come back in one
_MOST_FAILURES: Final = 6


@dataclass(frozen=True, slots=True)
class UnboundPod:
    """A pod without a node. asks_for: resource names of its containers' limits, but for those of which it wants none."""

    namespace: str
    name: str
    uid: str
    phase: str = ""
    asks_for: frozenset[str] = frozenset()
    annotations: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a pod is not marked; without a pod, why none could be listed. resources: those that it is about, and maybe others.

    is_passing: whether it may go by itself. is_away: whether the API server gives no answer at all, which may take any time.
    patience_seconds: how long the API server asks to be left alone.
    """

    problem: str
    resources: frozenset[str]
    pod: UnboundPod | None = None
    is_passing: bool = False
    is_away: bool = False
    patience_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Tries:
    """How often it was tried in vain for one resource, and when it is tried again (monotonic seconds)."""

    failures: int = 0
    next_at: float = 0.0


def to_mark(pods: Iterable[UnboundPod], resources: frozenset[str]) -> tuple[UnboundPod, ...]:
    """Those that ask for one of these resources and may not wait for their agent yet."""
    return tuple(
        pod
        for pod in pods
        if pod.phase not in _OVER
        and pod.asks_for & resources
        and not is_marked(pod.annotations or {}, longest=_LONGEST_READ)
    )


def next_tries(tried: Mapping[str, Tries], troubles: Iterable[Trouble], now: float) -> dict[str, Tries]:
    """For which of these resources it is tried again; the others are done, or were tried often enough.

    tried: whose pods have just been looked for, with the tries before that. now: monotonic seconds.
    """
    passing: dict[str, list[Trouble]] = defaultdict(list)
    for trouble in troubles:
        for resource in trouble.resources & tried.keys() if trouble.is_passing else ():
            passing[resource].append(trouble)
    tries = {resource: _after(tried[resource], found, now) for resource, found in passing.items()}
    return {resource: each for resource, each in tries.items() if each.failures < _MOST_FAILURES}


def _after(tries: Tries, troubles: list[Trouble], now: float) -> Tries:
    failures = tries.failures + (not any(each.is_away for each in troubles))
    delay = exponential_seconds(failures, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)
    return Tries(failures, now + max(delay, *(each.patience_seconds for each in troubles)))


def advertised(records: Iterable[NodeDeviceRecord]) -> frozenset[str]:
    """Resources that stand on a Node by our doing, and so have had their waiting pods marked before."""
    return frozenset(record.resource for record in records if _is_advertised(record))


def _is_advertised(record: NodeDeviceRecord) -> bool:
    stored = record.conditions.get(names.Condition.ADVERTISED)
    return (
        record.runtime == names.RUNTIME_NRI
        and stored is not None
        and stored.status == "True"
        and stored.reason != names.Reason.BY_KUBELET
    )
