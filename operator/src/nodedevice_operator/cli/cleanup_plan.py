"""The scope of a cleanup, the fields that it removes from a Node, and the plan that it prints first. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from nodedevice_operator.objects.node import NodeRecord

# So many names are listed in a line of the plan.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class CleanupScope:
    """namespace: of the release. delete_leases_namespace: delete that namespace as a whole; else only the Leases in it."""

    namespace: str
    leases_namespace: str
    deployment: str
    daemon_sets: tuple[str, ...]
    delete_crds: bool
    delete_leases_namespace: bool


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What to remove from one Node. capacity: resource names that an apply without any name removes."""

    node: str
    capacity: tuple[str, ...]
    is_tainted: bool
    labels: tuple[str, ...]

    @property
    def is_nothing(self) -> bool:
        return not (self.capacity or self.is_tainted or self.labels)


@dataclass(frozen=True, slots=True)
class Survey:
    """marked: Nodes with fields of the operator. kept: for their cordons. Objects that may not be read count as existing."""

    workloads: tuple[tuple[str, str], ...]
    pods: int
    nodes: int
    marked: tuple[str, ...]
    policies: tuple[str, ...]
    pod_devices: int
    node_devices: int
    kept: tuple[str, ...]
    has_leases_namespace: bool
    crds: tuple[str, ...]


def withdrawal(node: NodeRecord) -> Withdrawal:
    ours = (name for name, seen in node.resources.items() if seen.is_ours)
    owned = node.taint_and_labels
    return Withdrawal(node.name, tuple(sorted(ours)), owned.is_tainted, tuple(sorted(owned.labels)))


def withdrawals(nodes: Iterable[NodeRecord]) -> list[tuple[NodeRecord, Withdrawal]]:
    return [(node, found) for node in nodes if not (found := withdrawal(node)).is_nothing]


def staying(before: Withdrawal, after: NodeRecord) -> dict[str, str]:
    """The given-up resources that the Node still shows, with their owners now: by resource name."""
    # a copy in allocatable alone goes with the kubelet's next sync
    found = {
        name: seen for name in before.capacity if (seen := after.resources.get(name)) and seen.capacity is not None
    }
    return {name: ", ".join(sorted(seen.capacity_strangers)) for name, seen in found.items()}


def plan(scope: CleanupScope, survey: Survey) -> list[str]:
    """What the cleanup will do, in its order: a line for each step that has anything to do, and for what people would miss."""
    found = [_workloads(scope, survey)]
    if survey.marked:
        found.append(
            f"remove capacity, taint and labels of ours from {len(survey.marked)} of {survey.nodes} Nodes: "
            f"{_few(survey.marked)}"
        )
    if survey.policies:
        found.append(f"delete {_few(survey.policies)}")
    if survey.pod_devices:
        found.append(f"delete {survey.pod_devices} PodDevices; pods keep running, with the devices they have")
    if survey.node_devices:
        found.append(f"delete {survey.node_devices} NodeDevices")
    if survey.kept:
        found.append(f"keep {len(survey.kept)} NodeDevices, without status, for their cordons: {_few(survey.kept)}")
    if survey.has_leases_namespace:
        what = "" if scope.delete_leases_namespace else "the agents' Leases in "
        found.append(f"delete {what}namespace {scope.leases_namespace}")
    if survey.crds:
        found.append(f"delete {', '.join(survey.crds)}, with every cordon and every NodeDeviceConfig")
    elif not scope.delete_crds:
        found.append("keep the CRDs and every NodeDeviceConfig (--delete-crds deletes them)")
    return found


def _workloads(scope: CleanupScope, survey: Survey) -> str:
    if not survey.workloads:
        return f"no workload of ours is in namespace {scope.namespace} (--namespace names another)"
    named = _few([f"{kind} {name}" for kind, name in survey.workloads])
    return f"in namespace {scope.namespace} delete {named}, with {survey.pods} pods"


def _few(found: Iterable[str]) -> str:
    listed = list(found)
    more = [f"{len(listed) - _NAMED} more"] if len(listed) > _NAMED else []
    return ", ".join(listed[:_NAMED] + more)
