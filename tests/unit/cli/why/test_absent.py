"""A pod that does not exist: which controllers make pods of that name, what stops them, or which names may be meant."""

from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Condition, Meta, Pod
from kubectl_nodedevice.why.controllers import absent
from kubectl_nodedevice.why.controllers.controller import Controller, family_of
from kubectl_nodedevice.why.facts import WORKLOADS, Facts, Unread
from kubectl_nodedevice.why.kinds import Event, Workload

from tests.unit.cli.why.clusters import NOW, OLD

LONG: Final = "a" * 60


def controller(kind: str, name: str, owner: str = "", **more: Any) -> Controller:
    return Controller(kind, Meta(name, "team", f"uid-{kind}-{name}", owner=owner), **more)


WEB = controller("Deployment", "web")
NEW = controller("ReplicaSet", "web-7d9c5f", "Deployment/web", revision=2)
OLD_SET = controller("ReplicaSet", "web-5d9c5f", "Deployment/web", wanted=0, revision=1)
NIGHTLY = controller("CronJob", "nightly", schedule="0 3 * * *")
RUN = controller("Job", "nightly-2938", "CronJob/nightly")
KNOWN: Final = (
    controller("Deployment", "web-frontend"),
    controller("ReplicaSet", "web-frontend-6f9d4", "Deployment/web-frontend"),
    WEB,
    OLD_SET,
    NEW,
    controller("StatefulSet", "db"),
    controller("DaemonSet", "agent"),
    NIGHTLY,
    RUN,
    controller("Job", "train"),
    controller("Job", LONG),
    controller("ReplicaSet", "lone"),
)


@pytest.mark.parametrize(
    ("name", "root"),
    [
        ("web", "web"),
        ("web-7d9c5f-x7k2p", "web"),
        # of a ReplicaSet that is gone
        ("web-55bb6f7d-x7k2p", "web"),
        ("web-frontend", "web-frontend"),
        # which only begin like another
        ("web-front", ""),
        ("webs", ""),
        ("db", "db"),
        ("db-0", "db"),
        ("db-x7k2p", ""),
        ("agent-x7k2p", "agent"),
        ("nightly", "nightly"),
        # of a Job that is gone
        ("nightly-2940-x7k2p", "nightly"),
        ("train-x7k2p", "train"),
        ("train-3-x7k2p", "train"),
        (f"{LONG[:58]}x7k2p", LONG),
        (f"{LONG[:58]}eagle", ""),
        ("lone-x7k2p", "lone"),
    ],
)
def test_which_controllers_a_name_belongs_to(name: str, root: str) -> None:
    found = family_of(name, KNOWN)
    assert (found[0].meta.name if found else "") == root


def test_a_controller_whose_own_is_not_known_is_meant_by_its_name_without_the_drawn_part() -> None:
    known = [controller("ReplicaSet", "web-5d9c"), controller("ReplicaSet", "web-frontend")]
    for name in ("web", "web-5d9c", "web-5d9c-x7k"):
        assert [each.key for each in family_of(name, known)] == ["ReplicaSet/web-5d9c"]
    assert family_of("web-front", known) == ()


_FAILURE: Final = Condition("ReplicaFailure", "True", "FailedCreate", "exceeded quota: team, requested: pods=1", OLD)
_QUOTA: Final = "exceeded quota: team, requested: pods=1 (4 min ago)"


def pod(name: str, owner: str = "StatefulSet/db", ready: str = "True", **more: Any) -> Pod:
    conditions = {"Ready": Condition("Ready", ready)}
    return Pod(Meta(name, "team", f"uid-{name}", owner=owner, **more), phase="Running", conditions=conditions)


def facts(*family: Controller, name: str = "web", **more: Any) -> Facts:
    return Facts(NOW, "team", name, family=family, **more)


def event(found: Controller, message: str = "no", reason: str = "FailedCreate", uid: str = "") -> Event:
    return Event(found.kind, found.meta.name, uid or found.meta.uid, reason, message, OLD)


def refused(found: Controller) -> Controller:
    return replace(found, conditions={_FAILURE.type: _FAILURE})


_DB: Final = controller("StatefulSet", "db", wanted=3, is_ordered=True)
_PODS: Final = (pod("db-0"), pod("db-1", ready="False"))
_FAILED: Final = {"Failed": Condition("Failed", "True", "BackoffLimitExceeded", "too often")}
_COMPLETE: Final = {"Complete": Condition("Complete", "True")}
_SUSPENDED: Final = replace(RUN, meta=replace(RUN.meta, owner=""), is_suspended=True)
_QUEUED: Final = replace(_SUSPENDED, meta=replace(_SUSPENDED.meta, labels={"kueue.x-k8s.io/queue-name": "gpus"}))
_WORKLOAD: Final = Workload(
    Meta("job-x", "team"), conditions={"QuotaReserved": Condition("QuotaReserved", "False", message="full.")}
)


def stops(code: str, given: Facts, /, **fields: str) -> tuple[Facts, str, dict[str, str]]:
    """fields: some of those of the obstacle with that code."""
    return given, code, fields


def nothing_stops(*family: Controller, **more: Any) -> tuple[Facts, str, dict[str, str]]:
    return facts(*family, **more), "", {}


_PAUSED: Final = replace(WEB, is_paused=True)
_NO_WORKLOAD: Final = (Unread(WORKLOADS, "no"),)


@pytest.mark.parametrize(
    ("given", "code", "fields"),
    [
        stops("NoReplicas", facts(replace(WEB, wanted=0), NEW), asked="spec.replicas is 0", owner="deployment/web"),
        nothing_stops(WEB, NEW),
        stops(
            *("NoReplicas", facts(replace(_DB, wanted=2), name="db-4")),
            asked="spec.replicas is 2, db-0 to db-1",
            scale_options="scale statefulset/db --replicas 5",
        ),
        nothing_stops(replace(_DB, wanted=2, first=3), name="db-4"),
        # suspended
        stops("JobSuspended", facts(_SUSPENDED), of="", resume_patch='{"spec": {"suspend": false}}'),
        stops("JobSuspended", facts(_SUSPENDED), controller="Job nightly-2938"),
        stops("JobSuspended", facts(replace(NIGHTLY, is_suspended=True)), controller="CronJob nightly"),
        stops("QueueWaits", facts(_QUEUED, has_queue=True), workload="its Workload, which does not exist yet"),
        stops(
            *("QueueWaits", facts(_QUEUED, has_queue=True, unread=_NO_WORKLOAD)),
            workload="its Workload, which you may not see",
            workload_options="workloads.kueue.x-k8s.io",
        ),
        stops(
            *("QueueWaits", facts(_SUSPENDED, has_queue=True, workload=_WORKLOAD)),
            **{"workload": "Workload job-x", "words": ": full", "workload_options": "workloads.kueue.x-k8s.io job-x"},
        ),
        stops("DeploymentPaused", facts(_PAUSED), owner="deployment/web"),
        nothing_stops(_PAUSED, NEW),
        # in order
        stops("EarlierPodNotReady", facts(_DB, name="db-2", pods=_PODS), earlier="db-1", controller="StatefulSet db"),
        stops("EarlierPodNotReady", facts(_DB, name="db-1", pods=(pod("db-0", deleted=OLD),)), earlier="db-0"),
        nothing_stops(replace(_DB, is_ordered=False), name="db-2", pods=_PODS),
        # refused, as it says now
        stops("QuotaExceeded", facts(WEB, refused(NEW)), words=_QUOTA, quota="team", owner="replicaset/web-7d9c5f"),
        stops("CreationRefused", facts(WEB, NEW, events=(event(NEW),)), words="no (4 min ago)", quota=""),
        # that is over
        nothing_stops(WEB, replace(refused(NEW), made=1)),
        nothing_stops(WEB, refused(NEW), pods=(pod("web-7d9c5f-x7k2p", NEW.key),)),
        nothing_stops(WEB, replace(NEW, made=1), events=(event(NEW),)),
        nothing_stops(WEB, NEW, events=(event(NEW), event(NEW, reason="SuccessfulCreate"))),
        nothing_stops(WEB, NEW, events=(event(NEW, uid="of the one before"),)),
        nothing_stops(WEB, NEW, events=(event(controller("ReplicaSet", "web-frontend")),)),
        # ended
        stops("JobFailed", facts(replace(RUN, conditions=_FAILED)), words="BackoffLimitExceeded: too often"),
        nothing_stops(replace(RUN, conditions=_COMPLETE)),
    ],
)
def test_what_stops_a_controller(given: Facts, code: str, fields: dict[str, str]) -> None:
    found = absent.obstacles(given)
    assert [each.code for each in found] == ([code] if code else [])
    assert fields.items() <= {key: value for each in found for key, value in each.fields.items()}.items()


_NEW_POD: Final = pod("web-7d9c5f-x7k2p")


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (facts(name="trai", pod_names=("zebra", "tria", "trai-2", "trai-1")), "did you mean trai-1, trai-2, tria?"),
        (facts(name="train", pod_names=("zebra",)), "kubectl get pods --all-namespaces has all names"),
        # those of its controllers before those of like names
        (facts(WEB, NEW, pods=(_NEW_POD,), pod_names=("web-frontend-x",)), "did you mean web-7d9c5f-x7k2p?"),
        (facts(replace(RUN, conditions=_COMPLETE)), "Job nightly-2938 has ended: Complete"),
        (facts(NIGHTLY, name="nightly"), "CronJob nightly makes its next Job by its schedule, 0 3 * * *"),
        (facts(WEB), "kubectl describe deployment/web --namespace team has what its controller says"),
    ],
)
def test_which_names_may_be_meant(given: Facts, remedy: str) -> None:
    assert absent.remedy(given) == remedy
