"""Controllers, Workloads and rolling updates as the API server has them."""

from typing import Any

import pytest
from kubectl_nodedevice.cluster import Meta, Pod
from kubectl_nodedevice.records import record_of
from kubectl_nodedevice.why.controllers import queues, rollouts
from kubectl_nodedevice.why.controllers.controller import Controller, controller_of
from kubectl_nodedevice.why.kinds import Workload

from tests.unit.cli.why.clusters import OLD


@pytest.mark.parametrize(
    ("kind", "spec", "is_surging"),
    [
        # the defaults: a quarter of one pod, rounded up and down
        ("Deployment", {}, True),
        # one old pod may be ended at once
        ("Deployment", {"replicas": 4}, False),
        ("Deployment", {"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}, True),
        ("Deployment", {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}, False),
        ("Deployment", {"strategy": {"type": "Recreate"}}, False),
        ("DaemonSet", {}, False),
        ("DaemonSet", {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, True),
    ],
)
def test_whether_an_update_waits_for_the_new_pod(kind: str, spec: dict[str, Any], is_surging: bool) -> None:
    assert controller_of(kind, {"spec": spec}).is_surging == is_surging


@pytest.mark.parametrize("kind", ["Deployment", "CronJob", "Job", "StatefulSet", "DaemonSet"])
@pytest.mark.parametrize(
    "odd", [None, 3, "x", [], {"spec": None, "status": 3}, {"spec": {"replicas": True, "ordinals": []}}]
)
def test_whatever_a_controller_is_it_is_read(kind: str, odd: Any) -> None:
    assert controller_of(kind, odd).kind == kind
    assert record_of(Workload, odd).is_active


def replica_set(name: str, revision: int = 0) -> Controller:
    return Controller("ReplicaSet", Meta(name, owner="Deployment/web"), revision=revision)


def pod(name: str, owner: str = "ReplicaSet/web-1", node: str = "node-a", revision: str = "", **more: Any) -> Pod:
    labels = {"controller-revision-hash": revision} if revision else {}
    return Pod(Meta(name, "team", f"uid-{name}", owner=owner, labels=labels, **more), node, "Running")


_WEB = Controller("Deployment", Meta("web", "team"), is_surging=True)
_OTHER = Controller("ReplicaSet", Meta("other", owner="Deployment/x"))
_SETS = (replica_set("web-1", 1), replica_set("web-2", 2), _OTHER)
_NEW = pod("new", "ReplicaSet/web-2", "")


@pytest.mark.parametrize(
    ("root", "old", "is_before"),
    [
        (_WEB, pod("old"), True),
        (Controller("Deployment", Meta("web")), pod("old"), False),
        (_WEB, pod("old", "ReplicaSet/web-2"), False),
        (_WEB, pod("old", "ReplicaSet/other"), False),
        (_WEB, pod("old", node=""), False),
        (_WEB, pod("old", deleted=OLD), False),
    ],
)
def test_which_pods_a_rollout_ends_when_the_new_one_is_ready(root: Controller, old: Pod, is_before: bool) -> None:
    expected = frozenset({"team/old"}) if is_before else frozenset()
    assert rollouts.predecessors(_NEW, root, _SETS, [old, _NEW]) == expected


def workload(**more: Any) -> dict[str, Any]:
    owner = {"kind": "Pod", "uid": "uid-1"}
    meta = {"name": "pod-train", "creationTimestamp": OLD, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"queueName": "gpus", **more.pop("spec", {})}, "status": more}


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


_CHECKS = [{"name": "prov", "state": "Pending", "message": "no room"}, {"name": "b", "state": "Ready"}]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (workload(), "queue gpus has not decided about it yet"),
        (workload(conditions=[condition("QuotaReserved", "False", "no such queue")]), "no such queue"),
        (workload(conditions=[condition("QuotaReserved", "True")], admissionChecks=_CHECKS), "prov: no room"),
    ],
)
def test_what_a_queue_says(found: dict[str, Any], words: str) -> None:
    assert record_of(Workload, found).words == words


def test_which_workload_is_of_a_pod() -> None:
    own, group = record_of(Workload, workload()), record_of(Workload, {"metadata": {"name": "group-a"}})
    assert queues.workload_for([group, own], Meta("train", uid="uid-1")) == own
    assert queues.workload_for([group, own], Meta("train", uid="uid-2")) is None
    assert queues.workload_for([group, own], Meta("train")) is None
    of_group = Meta("train", uid="uid-2", labels={"kueue.x-k8s.io/pod-group-name": "group-a"})
    assert queues.workload_for([group, own], of_group) == group
