"""Models an agent: assigns pods units of a node's GPUs, and builds the status that it publishes. Pure; sends nothing.

It plans with the product's own code, and follows an assignment if it has room, as the device manager does.
"""

from dataclasses import dataclass
from typing import Any, Final

from msgspec.structs import replace
from nodedevice_api import assigned_parts, names
from nodedevice_api.nodedevice import AllocationStatus, DeviceStatus, HeldParts, PartCounts, PartRulesStatus
from nodedevice_api.parts import PartRules, Placement
from nodedevice_kube.planner import Misfit, Need, Planner

from tests.cluster import agent_objects

RESOURCE: Final = "aliyun.com/gpu-mem"
GPUS: Final = 8
UNITS: Final = 80
CONTAINER: Final = "main"
_RULES: Final = PartRules(Placement.SAME_PARENT)
_RULES_SHOWN: Final = PartRulesStatus(
    placement=_RULES.placement, choice=_RULES.choice, containers=_RULES.containers, advertise=_RULES.advertise
)


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod with one container that needs units of one GPU. assigned: the annotation; None without one."""

    namespace: str
    name: str
    uid: str
    units: int
    assigned: str | None

    def gpu(self) -> str | None:
        """The GPU that the scheduler has assigned. Raises ValueError for an annotation that is not this pod's."""
        if self.assigned is None:
            return None
        (gpu,) = assigned_parts.decode(self.assigned, self.uid)[RESOURCE][CONTAINER]
        return gpu


@dataclass(frozen=True, slots=True)
class _Held:
    pod: BoundPod
    gpu: str


class NodeModel:
    """waits: pods that were bound here but fitted on no GPU. refused: assignments without room; unfollowed: UIDs of
    their pods. Another scheduler's pod may have got the units first.
    """

    def __init__(self, node: str) -> None:
        self.node = node
        self.waits = 0
        self.refused = 0
        self.unfollowed: set[str] = set()
        self._held: dict[str, _Held] = {}
        self._waiting: dict[str, BoundPod] = {}
        self._gpus = [f"GPU-{node}-{number}" for number in range(GPUS)]

    @property
    def units(self) -> int:
        """Number of units that pods hold."""
        return sum(held.pod.units for held in self._held.values())

    def bound(self, pod: BoundPod) -> None:
        """A pod is bound here."""
        if pod.uid not in self._held and pod.uid not in self._waiting and not self._allocate(pod):
            self.waits += 1
            self._waiting[pod.uid] = pod

    def released(self, uid: str) -> None:
        """The containers of a pod have ended, and it is deleted; waiting pods are tried again."""
        self._waiting.pop(uid, None)
        self._held.pop(uid, None)
        for pod in list(self._waiting.values()):
            if self._allocate(pod):
                del self._waiting[pod.uid]

    def free(self) -> dict[str, int]:
        """Free units by GPU."""
        found = dict.fromkeys(self._gpus, UNITS)
        for held in self._held.values():
            found[held.gpu] -= held.pod.units
        return found

    def status(self) -> dict[str, Any]:
        """The body of a status apply."""
        free = self.free()
        devices = [
            DeviceStatus(id=gpu, health="Healthy", parts=PartCounts(UNITS, UNITS, UNITS - left, left))
            for gpu, left in free.items()
        ]
        allocations = [_allocation(held) for held in self._held.values()]
        counts: dict[str, Any] = {"total": GPUS * UNITS, "healthy": GPUS * UNITS, "available": sum(free.values())}
        parts = replace(_RULES_SHOWN, largest_available=max(free.values()))
        return {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE,
            "metadata": {"name": names.node_device_name(self.node, RESOURCE)},
            "status": agent_objects.status(
                devices, allocations, delivery=names.DELIVERY_NRI, parts=parts, allocated=self.units, **counts
            ),
        }

    def _allocate(self, pod: BoundPod) -> bool:
        needs, planner, wanted = [Need(pod.units)], Planner(_RULES, self.free()), pod.gpu()
        if wanted is not None:
            if planner.can_take(needs, [{wanted: pod.units}]):
                self._held[pod.uid] = _Held(pod, wanted)
                return True
            self.refused += 1
            self.unfollowed.add(pod.uid)
        found = planner.plan(needs)
        if isinstance(found, Misfit):
            return False
        self._held[pod.uid] = _Held(pod, next(iter(found[0])))
        return True


def _allocation(held: _Held) -> AllocationStatus:
    pod = held.pod
    return AllocationStatus(
        pod_uid=pod.uid,
        namespace=pod.namespace,
        name=pod.name,
        container=CONTAINER,
        device_ids=[f"{held.gpu}-{pod.uid}"],
        parts=[HeldParts(held.gpu, pod.units, f"0-{pod.units - 1}")],
    )
