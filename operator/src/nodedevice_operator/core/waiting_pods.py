"""Which pods a new resource name comes too late for: they were made before it was in the policy of core.required_plugins.

Such a pod is admitted, asks for the name, waits for capacity, and has no mark; to bind it is no change that would mark it.
Values in, values out; sends nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodedevice_api import names

from nodedevice_operator.core.records import NodeDeviceRecord
from nodedevice_operator.core.required_plugins import is_marked

_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class UnboundPod:
    """A pod without a node. asks_for: resource names of its containers' limits, but for those of which it wants none."""

    namespace: str
    name: str
    uid: str
    phase: str = ""
    asks_for: frozenset[str] = frozenset()
    annotations: Mapping[str, str] | None = None


def to_mark(pods: Iterable[UnboundPod], resources: frozenset[str]) -> tuple[UnboundPod, ...]:
    """Those that ask for one of these resources and do not wait for their agent yet."""
    return tuple(
        pod
        for pod in pods
        if pod.phase not in _OVER and pod.asks_for & resources and not is_marked(pod.annotations or {})
    )


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
