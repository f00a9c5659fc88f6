"""Verbs by which a controller makes no pod: by the API, with the real controllers."""

from collections.abc import Sequence
from typing import Any, Final

from tests.cluster.api import Deployment, Job, PatchType
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation
from tests.integration.why.situations import Controllers, Situation, workload
from tests.integration.why.verbs import Do, Verb

_ANYTHING: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
# Kueue's kind, as far as it is read
QUEUE: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "workloads.kueue.x-k8s.io"},
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"kind": "Workload", "plural": "workloads", "singular": "workload"},
        "scope": "Namespaced",
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}],
    },
}
_GROUPS: Final = {"Job": "batch/v1", "CronJob": "batch/v1"}
# of pods that no scheduler takes, and that so never run
_NO_SCHEDULER: Final = "nobody"


def controller(at: Situation, kind: str, template: dict[str, Any], name: str = "", **spec: Any) -> dict[str, Any]:
    meta = {"name": name or at.name, "namespace": at.namespace}
    if kind == "CronJob":
        job = {"spec": {"template": _ended(template)}}
        spec |= {"schedule": "0 3 * * *", "jobTemplate": job}
    elif kind == "Job":
        spec |= {"template": _ended(template)}
    else:
        spec |= {"selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    if kind == "StatefulSet":
        spec |= {"serviceName": at.name}
    return {"apiVersion": _GROUPS.get(kind, "apps/v1"), "kind": kind, "metadata": meta, "spec": spec}


def _ended(template: dict[str, Any]) -> dict[str, Any]:
    return {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}


def _by(kind: str, **spec: Any) -> Do:
    """The pod is made by such a controller."""

    def do(at: Situation) -> None:
        at.controllers = lambda template: [controller(at, kind, template, **spec)]

    return do


def _unscheduled(at: Situation, kind: str, **spec: Any) -> Controllers:
    def made(template: dict[str, Any]) -> Sequence[dict[str, Any]]:
        template = {**template, "spec": {**template["spec"], "schedulerName": _NO_SCHEDULER}}
        return [controller(at, kind, template, **spec)]

    return made


def _refused(at: Situation) -> None:
    """By a quota for none of its resource."""
    meta = {"name": f"{at.name}-quota", "namespace": at.namespace}
    spec = {"hard": {f"requests.{at.resource}": "0"}}
    at.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": spec})
    _by("Deployment")(at)


def _without_account(kind: str) -> Do:
    def do(at: Situation) -> None:
        at.spec["serviceAccountName"] = "nobody"
        _by(kind)(at)

    return do


def _beyond(at: Situation) -> None:
    at.controllers = _unscheduled(at, "StatefulSet", replicas=1)
    at.asked = f"{at.name}-3"


def _in_order(at: Situation) -> None:
    at.controllers = _unscheduled(at, "StatefulSet", replicas=2)
    at.asked = f"{at.name}-1"


def _first_made(at: Situation) -> None:
    wait_until(lambda: len(at.pods()) == 1, f"{at.name}-0 is made")


def _too_late(at: Situation) -> None:
    """Its pods wait for a scheduler that there is not, and its deadline is a second."""
    at.controllers = _unscheduled(at, "Job", activeDeadlineSeconds=1, backoffLimit=0)


def _failed(at: Situation) -> None:
    def is_so() -> bool:
        found: Any = at.client.get(Job, at.name, namespace=at.namespace)
        return any(each.type == "Failed" for each in (found.status.conditions or [])) and not at.pods()

    wait_until(is_so, f"{at.name} has failed")


def _queue_of_job(at: Situation) -> None:
    found: Any = at.client.get(Job, at.name, namespace=at.namespace)
    at.apply(workload(at, "job", at.name, str(found.metadata.uid)))


def _rollout(at: Situation) -> None:
    """On each node an old pod holds three of four devices, and stays until the one that replaces it is Ready."""
    limits = {at.resource: "3"}
    container = {"name": "main", "image": "none", "resources": {"limits": limits}}
    labels = {"app": at.name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container], "schedulerName": _NO_SCHEDULER}}
    rolling: dict[str, Any] = {"strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}}
    at.apply(controller(at, "Deployment", template, replicas=2, **rolling))
    wait_until(lambda: len(at.pods()) == 2, "the old pods are made")
    for node, pod in zip(at.nodes, at.pods(), strict=True):
        name, uid = str(pod.metadata.name), str(pod.metadata.uid)
        at.bind(name, node)
        own = {"namespace": at.namespace, "name": name}
        at.agents[node].allocations.append(allocation(uid, "main", "gpu-0", "gpu-1", "gpu-2", **own))
    at.publish()
    at.is_lowered = True
    old = {str(each.metadata.name) for each in at.pods()}
    at.controllers = lambda _: []

    def update(at: Situation) -> None:
        template = at.template()
        template["spec"].setdefault("schedulerName", "default-scheduler")
        patch = {"spec": {"template": template}}
        at.client.patch(Deployment, at.name, patch, namespace=at.namespace, patch_type=PatchType.STRATEGIC)
        new: list[str] = []

        def is_so() -> bool:
            new[:] = [str(each.metadata.name) for each in at.pods() if each.metadata.name not in old]
            return bool(new)

        wait_until(is_so, "the new pod is made")
        at.asked = new[0]

    at.update = update


def _update(at: Situation) -> None:
    assert at.update is not None
    at.update(at)


ABSENT = (
    Verb("QuotaExceeded", "refuse by quota", _refused, "made count plugin"),
    Verb("CreationRefused", "no such account", _without_account("ReplicaSet"), "made"),
    Verb("CreationRefused", "no such account for a Job", _without_account("Job"), "made"),
    Verb("NoReplicas", "scale to 0", _by("Deployment", replicas=0), "made"),
    Verb("NoReplicas", "ask beyond the last", _beyond, "made", after=_first_made),
    Verb("JobSuspended", "suspend", _by("Job", suspend=True), "made"),
    Verb("JobSuspended", "suspend a CronJob", _by("CronJob", suspend=True), "made"),
    Verb("QueueWaits", "queue a Job", _by("Job", suspend=True), "made", after=_queue_of_job),
    Verb("JobFailed", "fail", _too_late, "made", after=_failed),
    Verb("DeploymentPaused", "pause", _by("Deployment", paused=True), "made"),
    Verb("EarlierPodNotReady", "wait for the first", _in_order, "made", after=_first_made),
    Verb("HeldByPredecessor", "roll out", _rollout, "made count gate lost", after=_update),
)
