"""Reads the controllers of a pod, which may not exist, and the queue that may hold it."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

from nodedevice_kube.api_errors import NotFound
from nodedevice_kube.fields import map_of
from nodedevice_kube.paths import PODS, selector

from kubectl_nodedevice.api import APPS, CORE, path_of
from kubectl_nodedevice.cluster import Json, Meta, Pod
from kubectl_nodedevice.quantities import requests
from kubectl_nodedevice.why import facts as kinds_of
from kubectl_nodedevice.why import kinds
from kubectl_nodedevice.why.cluster_reader import Gathering
from kubectl_nodedevice.why.controllers import queues, rollouts
from kubectl_nodedevice.why.controllers.controller import KINDS, Controller, controller_of, family_of
from kubectl_nodedevice.why.kinds import Event

_BATCH: Final = "batch/v1"
_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(KINDS, APPS),
    "Job": _BATCH,
    "CronJob": _BATCH,
    "ReplicationController": CORE,
}


def of_pod(gathering: Gathering, pod: Pod) -> dict[str, Any]:
    """Read what a pending pod waits for: pods that its rollout ends later, and its object in a queue."""
    if pod.node or pod.is_over:
        return {}
    found: dict[str, Any] = {}
    if queues.gates_of_queue(pod):
        kind, _, name = pod.meta.owner.partition("/")
        owner = _one(gathering, kind, pod.meta.namespace, name) if kind in KINDS else None
        metas = [pod.meta, *([owner.meta] if owner else [])]
        found |= _queue(gathering, pod.meta.namespace, *metas)
    if requests(pod) or pod.claims:
        found |= _rollout(gathering, pod)
    return found


def _rollout(gathering: Gathering, pod: Pod) -> dict[str, Any]:
    namespace = pod.meta.namespace
    kind, _, name = pod.meta.owner.partition("/")
    if kind not in ("ReplicaSet", "DaemonSet"):
        return {}
    root = own = _one(gathering, kind, namespace, name)
    if own is not None and kind == "ReplicaSet":
        kind, _, name = own.meta.owner.partition("/")
        root = _one(gathering, kind, namespace, name) if kind == "Deployment" else None
    if root is None or not root.is_surging:
        return {}
    labels = selector(root.selector)
    query = {"labelSelector": labels} if labels else {}
    sets = _all(gathering, "ReplicaSet", namespace, query) if root.kind == "Deployment" else None
    pods = gathering.all_of("pods", PODS.path(namespace=namespace), Pod, query)
    return {"predecessors": rollouts.predecessors(pod, root, sets or (), pods), "rollout": root}


def of_absent(gathering: Gathering, namespace: str, name: str) -> dict[str, Any]:
    """Read the controllers that could make a missing pod, their pods and Events."""
    pods = gathering.all_of("pods", PODS.path(namespace=namespace), Pod)
    reasons = ("FailedCreate", "SuccessfulCreate")
    events = [each for reason in reasons for each in gathering.events(namespace, f"reason={reason}")]
    events = sorted((each for each in events if each.about_kind != "Pod"), key=lambda each: each.at)
    by_kind = {kind: _all(gathering, kind, namespace) for kind in KINDS}
    known = [each for found in by_kind.values() for each in found or ()]
    read = {kind for kind, found in by_kind.items() if found is not None}
    family = family_of(name, known) or family_of(name, _named(events, read))
    keys = {each.key for each in family}
    found: dict[str, Any] = {
        "family": family,
        "events": tuple(events),
        "pods": tuple(each for each in pods if each.meta.owner in keys),
        "pod_names": tuple(each.meta.name for each in pods),
    }
    if any(each.is_suspended for each in family):
        found |= _queue(gathering, namespace, *(each.meta for each in family))
    return found


def as_made(family: Sequence[Controller], namespace: str, name: str) -> Json:
    """Return the pod that they would make; {} if unknown."""
    makers = [each for each in family if each.template]
    if not makers:
        return {}
    # the outermost has the newest template
    return {"metadata": {"name": name, "namespace": namespace}, "spec": map_of(makers[0].template, "spec")}


def _named(events: Sequence[Event], read: Collection[str]) -> list[Controller]:
    """Return controllers known only from Events: their kind is forbidden, or not Kubernetes' own."""
    refused = {each.about_name: each for each in events if each.reason == "FailedCreate"}
    unknown = [each for each in refused.values() if each.about_kind not in read]
    return [Controller(each.about_kind, Meta(each.about_name, uid=each.about_uid)) for each in unknown]


def _all(
    gathering: Gathering, kind: str, namespace: str, query: Mapping[str, str] | None = None
) -> list[Controller] | None:
    """Return None if they cannot be read."""
    path = path_of(_PLACES[kind], _plural(kind), namespace=namespace)

    def read() -> list[Controller] | None:
        return list(gathering.reader.api.objects(_plural(kind), path, query, partial(controller_of, kind)))

    return gathering.guarded(_plural(kind), read, None)


def _one(gathering: Gathering, kind: str, namespace: str, name: str) -> Controller | None:
    path = path_of(_PLACES[kind], _plural(kind), name, namespace)
    return gathering.one_of(_plural(kind), path, name, partial(controller_of, kind))


def _plural(kind: str) -> str:
    return f"{kind.lower()}s"


def _queue(gathering: Gathering, namespace: str, *owners: Meta) -> dict[str, Any]:
    """Read whether Kueue is installed, and its Workloads, in the newest served version."""

    def read() -> list[kinds.Workload] | None:
        for version in queues.VERSIONS:
            path = path_of(version, "workloads", namespace=namespace)
            try:
                return list(gathering.reader.api.records(kinds.Workload, "workloads", path))
            except NotFound:
                continue
        return None

    nothing: list[kinds.Workload] | None = []
    found = gathering.guarded(kinds_of.WORKLOADS, read, nothing)
    return {"has_queue": found is not None, "workload": queues.workload_for(found or [], *owners)}
