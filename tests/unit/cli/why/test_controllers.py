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
    ("kind", "spec", "status", "wanted", "made"),
    [
        ("Deployment", {}, {}, 1, 0),
        ("Deployment", {"replicas": 0}, {"replicas": 2}, 0, 2),
        ("Job", {"parallelism": 3, "replicas": 9}, {"active": 2}, 3, 2),
        ("DaemonSet", {}, {"desiredNumberScheduled": 5, "currentNumberScheduled": 4}, 5, 4),
        ("StatefulSet", {"replicas": "many"}, {"replicas": None}, 1, 0),
    ],
)
def test_how_many_pods_a_controller_has(
    kind: str, spec: dict[str, Any], status: dict[str, Any], wanted: int, made: int
) -> None:
    found = controller_of(kind, {"metadata": {"name": "c"}, "spec": spec, "status": status})
    assert (found.wanted, found.made, found.key) == (wanted, made, f"{kind}/c")


@pytest.mark.parametrize(
    ("kind", "spec", "is_surging"),
    [
        # the defaults: a quarter of one pod, rounded up and down
        ("Deployment", {}, True),
        ("Deployment", {"replicas": 3}, True),
        # one old pod may be ended at once
        ("Deployment", {"replicas": 4}, False),
        ("Deployment", {"replicas": 4, "strategy": {"rollingUpdate": {"maxUnavailable": 0}}}, True),
        ("Deployment", {"strategy": {"rollingUpdate": {"maxUnavailable": 1}}}, False),
        ("Deployment", {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "25%"}}}, False),
        ("Deployment", {"strategy": {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": 0}}}, False),
        ("Deployment", {"strategy": {"type": "Recreate"}}, False),
        ("DaemonSet", {}, False),
        ("DaemonSet", {"updateStrategy": {"rollingUpdate": {"maxSurge": 1}}}, True),
        ("DaemonSet", {"updateStrategy": {"rollingUpdate": {"maxSurge": "10%"}}}, True),
        ("DaemonSet", {"updateStrategy": {"rollingUpdate": {"maxSurge": 0}}}, False),
        ("StatefulSet", {}, False),
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
_SETS = (
    replica_set("web-1", 1),
    replica_set("web-2", 2),
    Controller("ReplicaSet", Meta("other", owner="Deployment/x")),
)
_NEW = pod("new", "ReplicaSet/web-2", "")


@pytest.mark.parametrize(
    ("root", "old", "is_before"),
    [
        (_WEB, pod("old"), True),
        (Controller("Deployment", Meta("web")), pod("old"), False),
        (_WEB, pod("old", "ReplicaSet/web-2"), False),
        (_WEB, pod("old", "ReplicaSet/other"), False),
        (_WEB, pod("old", "ReplicaSet/gone"), False),
        (_WEB, pod("old", node=""), False),
        (_WEB, pod("old", deleted=OLD), False),
        (_WEB, pod("old", owner=""), False),
    ],
)
def test_which_pods_a_rollout_ends_when_the_new_one_is_ready(root: Controller, old: Pod, is_before: bool) -> None:
    expected = frozenset({"team/old"}) if is_before else frozenset()
    assert rollouts.predecessors(_NEW, root, _SETS, [old, _NEW]) == expected


def test_a_pod_of_an_older_revision_replaces_none() -> None:
    old, new = pod("old", "ReplicaSet/web-1", ""), pod("new", "ReplicaSet/web-2")
    assert rollouts.predecessors(old, _WEB, _SETS, [new]) == frozenset()
    # of sets without a revision the one that has the devices is the older one
    bare = [replica_set("web-1"), replica_set("web-2")]
    assert rollouts.predecessors(old, _WEB, bare, [new]) == {"team/new"}


@pytest.mark.parametrize(("old", "new", "is_before"), [("a", "b", True), ("a", "a", False)])
def test_pods_of_a_daemonset_differ_by_their_revision(old: str, new: str, is_before: bool) -> None:
    root = Controller("DaemonSet", Meta("agent", "team"), is_surging=True)
    before, after = pod("old", root.key, revision=old), pod("new", root.key, "", revision=new)
    assert rollouts.predecessors(after, root, (), [before]) == (frozenset({"team/old"}) if is_before else frozenset())
    assert "maxSurge" in rollouts.fields(root)["rollout_patch"]


def workload(**more: Any) -> dict[str, Any]:
    owner = {"kind": "Pod", "uid": "uid-1"}
    meta = {"name": "pod-train", "creationTimestamp": OLD, "ownerReferences": [owner]}
    return {"metadata": meta, "spec": {"queueName": "gpus", **more.pop("spec", {})}, "status": more}


def condition(kind: str, status: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "message": message}


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (workload(), "queue gpus has not decided about it yet"),
        (
            workload(conditions=[condition("QuotaReserved", "False", "LocalQueue x does not exist")]),
            "LocalQueue x does not exist",
        ),
        (workload(spec={"active": False}), "it is not active (spec.active is false)"),
        (
            workload(
                conditions=[condition("QuotaReserved", "True")],
                admissionChecks=[
                    {"name": "prov", "state": "Pending", "message": "no room"},
                    {"name": "b", "state": "Ready"},
                ],
            ),
            "prov: no room",
        ),
        (workload(conditions=[condition("QuotaReserved", "True")]), "its admission checks are not Ready"),
        (
            workload(conditions=[condition("QuotaReserved", "True"), condition("Admitted", "True")]),
            "it is admitted, and Kueue has not let the pod go yet",
        ),
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
