"""What a kubelet writes about its Node and its pods, as bodies of patches, for nodes that have no kubelet. Pure.

There are no containers: each starts at once and obeys SIGTERM at once, well within any grace period.
Source: kubelet pkg/kubelet/nodestatus/setters.go, kubelet_pods.go (getPhase) and status/status_manager.go @ 1.37.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tests.cluster.api import Object

Body = dict[str, Any]

_NODE_CONDITIONS: Final = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
    "PIDPressure": ("False", "KubeletHasSufficientPID"),
    "Ready": ("True", "KubeletReady"),
}
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Write:
    """The next write about a pod. patch: of its status; None: the pod has ended, and is to be removed."""

    patch: Body | None


def ready_node(node: Object, now: datetime) -> Body | None:
    """The patch that makes it Ready; None where it is. Capacity is not in it: the operator writes that."""
    found = {each.type: each for each in (node.status and node.status.conditions) or []}
    if "Ready" in found and found["Ready"].status == "True":
        return None
    time = _written(now)
    conditions = [
        {"type": kind, "status": status, "reason": reason, "message": "", **_times(time)}
        for kind, (status, reason) in _NODE_CONDITIONS.items()
    ]
    return {"status": {"conditions": conditions}}


def node_lease(node: Object, now: datetime) -> Body:
    """The Lease by which the node controller sees that the node lives."""
    owner = {"apiVersion": "v1", "kind": "Node", "name": node.metadata.name, "uid": node.metadata.uid}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": node.metadata.name, "ownerReferences": [owner]},
        "spec": {
            "holderIdentity": node.metadata.name,
            "leaseDurationSeconds": 40,
            "renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        },
    }


def next_write(pod: Object, now: datetime) -> Write | None:
    """What a kubelet writes next about a pod of its node; None: nothing, until somebody changes the pod.

    Pending, its containers being created; Running, which a Job's pod completes at once; after its deletion, its containers
    ended; and then the pod is removed.
    """
    phase = (pod.status and pod.status.phase) or "Pending"
    if pod.metadata.deletionTimestamp is not None:
        return Write(None if phase in _ENDED else _with_identity(pod, _ended(pod, now)))
    if phase == "Running" and any(owner.kind == "Job" for owner in pod.metadata.ownerReferences or ()):
        return Write(_with_identity(pod, _ended(pod, now)))
    if phase != "Pending":
        return None
    is_created = bool(pod.status and pod.status.containerStatuses)
    return Write(_with_identity(pod, _running(pod, now) if is_created else _created(pod, now)))


def _created(pod: Object, now: datetime) -> Body:
    waiting = {"waiting": {"reason": "ContainerCreating"}}
    return {
        "startTime": _written(now),
        "conditions": _conditions(now, "ContainersNotReady", Initialized=True, ContainersReady=False, Ready=False),
        "containerStatuses": [_container(each, waiting, is_running=False) for each in _containers(pod)],
    }


def _running(pod: Object, now: datetime) -> Body:
    running, done = {"running": {"startedAt": _written(now)}}, _terminated(now)
    initial = (pod.spec and pod.spec.initContainers) or []
    return {
        "phase": "Running",
        "conditions": _conditions(now, "", PodReadyToStartContainers=True, ContainersReady=True, Ready=True),
        "initContainerStatuses": [
            # a sidecar stays; it is ready, as one that has ended well is
            {**_container(each, running if _is_sidecar(each) else done, is_running=_is_sidecar(each)), "ready": True}
            for each in initial
        ],
        "containerStatuses": [_container(each, running, is_running=True) for each in _containers(pod)],
    }


def _ended(pod: Object, now: datetime) -> Body:
    started = pod.status.startTime if pod.status else None
    done = _terminated(started or now, now)
    return {
        "phase": "Succeeded",
        "conditions": _conditions(
            now, "PodCompleted", PodReadyToStartContainers=False, ContainersReady=False, Ready=False
        ),
        "containerStatuses": [_container(each, done, is_running=False) for each in _containers(pod)],
    }


def _with_identity(pod: Object, status: Body) -> Body:
    """A patch of this very pod, not of a later one of its name."""
    return {
        "metadata": {"uid": pod.metadata.uid},
        "status": {"observedGeneration": pod.metadata.generation, **status},
    }


def _containers(pod: Object) -> list[Object]:
    return list(pod.spec.containers) if pod.spec else []


def _is_sidecar(container: Object) -> bool:
    return bool(container.restartPolicy == "Always")


def _container(container: Object, state: Body, *, is_running: bool) -> Body:
    return {
        "name": container.name,
        "image": container.image or "",
        "imageID": "",
        "ready": is_running,
        "started": is_running,
        "restartCount": 0,
        "state": state,
    }


def _terminated(started: datetime, finished: datetime | None = None) -> Body:
    times = {"startedAt": _written(started), "finishedAt": _written(finished or started)}
    return {"terminated": {"exitCode": 0, "reason": "Completed", **times}}


def _conditions(now: datetime, why_not: str, **are_so: bool) -> list[Body]:
    """why_not: the reason of those that are False."""
    return [
        {
            "type": kind,
            "status": str(is_so),
            "reason": None if is_so else why_not,
            "lastTransitionTime": _written(now),
        }
        for kind, is_so in are_so.items()
    ]


def _times(time: str) -> Body:
    return {"lastHeartbeatTime": time, "lastTransitionTime": time}


def _written(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
