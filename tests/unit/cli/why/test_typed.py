"""`why` as it is typed, of pods that controllers have not made, or that wait for their own: nothing false is named."""

from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.unit.cli.api_server import DAEMON_SETS, LEASES, PODS, FakeApiServer
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import lease, pod
from tests.unit.cli.why.test_readers import EVENTS, asked, codes, event

APPS: Final = "/apis/apps/v1"
JOBS: Final = "/apis/batch/v1/jobs"
WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/workloads"
_QUOTA: Final = "exceeded quota: team, requested: pods=1"


def controller(name: str, owner: str = "", status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    kind, _, owner_name = owner.partition("/")
    owners = [{"kind": kind, "name": owner_name, "controller": True}] if owner else []
    template = {"metadata": {}, "spec": pod("x", node="")["spec"]}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "ownerReferences": owners}
    return {"metadata": meta, "spec": {"template": template, **spec}, "status": status or {}}


def owned(found: dict[str, Any], owner: str) -> dict[str, Any]:
    kind, _, name = owner.partition("/")
    found["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
    return found


def web(server: FakeApiServer, **status: Any) -> None:
    """A Deployment and its ReplicaSet, and another Deployment whose name begins so."""
    server.objects[f"{APPS}/deployments"] = [controller("web"), controller("web-frontend")]
    server.objects[f"{APPS}/replicasets"] = [
        controller("web-7d9c5f", "Deployment/web", status),
        controller("web-frontend-6f9d4", "Deployment/web-frontend"),
    ]


def test_a_refusal_that_is_over_is_none(run: Run, server: FakeApiServer) -> None:
    web(server, replicas=1)
    server.objects[PODS].append(owned(pod("web-7d9c5f-x7k2p"), "ReplicaSet/web-7d9c5f"))
    server.objects[EVENTS] = [event("FailedCreate", _QUOTA, "web-7d9c5f", "ReplicaSet")]
    ran = run("why", "pod", "web")
    remedy = "did you mean web-7d9c5f-x7k2p?"
    assert (ran.status, ran.err) == (2, f"error: pod web does not exist in namespace default; {remedy}\n")


def test_a_refusal_of_another_whose_name_begins_so_is_none(run: Run, server: FakeApiServer) -> None:
    web(server)
    server.objects[EVENTS] = [event("FailedCreate", _QUOTA, "web-frontend-6f9d4", "ReplicaSet")]
    assert codes(asked(run, "pod", "web-frontend"))[0] == "QuotaExceeded"
    found = asked(run, "pod", "web")
    assert "QuotaExceeded" not in codes(found)
    assert found["state"].startswith("does not exist: ReplicaSet web-7d9c5f has not made it.")


@pytest.mark.parametrize(
    ("plural", "made", "name", "code", "line"),
    [
        (
            "jobs",
            controller("train", suspend=True),
            "train",
            "JobSuspended",
            "kubectl patch job/train --namespace default",
        ),
        (
            "deployments",
            controller("web", replicas=0),
            "web",
            "NoReplicas",
            "kubectl scale deployment/web --replicas 1",
        ),
        (
            "deployments",
            controller("web", paused=True),
            "web",
            "DeploymentPaused",
            "kubectl rollout resume deployment/web",
        ),
        ("statefulsets", controller("db", replicas=2), "db-1", "EarlierPodNotReady", "kubectl nodedevice why pod db-0"),
    ],
)
def test_a_controller_that_makes_no_pod_is_asked_why(
    run: Run, server: FakeApiServer, plural: str, made: dict[str, Any], name: str, code: str, line: str
) -> None:
    group = JOBS.rpartition("/")[0] if plural == "jobs" else APPS
    server.objects[f"{group}/{plural}"] = [made]
    if plural == "statefulsets":
        server.objects[PODS].append(owned(pod("db-0", phase="Pending"), "StatefulSet/db"))
    ran = run("why", "pod", name)
    assert ran.status == 1
    assert f"[{code}]\n" in ran.out
    assert line in ran.out


def test_no_line_takes_a_gate_off(run: Run, server: FakeApiServer) -> None:
    gated = pod("gated", node="", phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]
    server.objects[PODS].append(gated)
    server.objects[WORKLOADS] = []
    ran = run("why", "pod", "gated")
    assert "[QueueWaits]" in ran.out
    assert "[SchedulingGated]" in ran.out
    assert "schedulingGates" not in ran.out


def test_the_agents_leases_are_found_in_another_namespace(run: Run, server: FakeApiServer) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    server.objects[LEASES] = [lease(name, "gpu-agents", now) for name in ("node-a", "node-b")]
    assert codes(asked(run, "node", "node-b")) == ["NoAgent"]
    account = {"name": "nodedevice-agent", "namespace": "gpus"}
    annotations = {"nodedevice.io/leases-namespace": "gpu-agents"}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    server.objects[bindings] = [
        {"metadata": {"name": "nodedevice-agent", "annotations": annotations}, "subjects": [account]}
    ]
    assert codes(asked(run, "node", "node-b")) == []
    server.objects[LEASES] = []
    assert "--namespace gpus " in run("why", "node", "node-b").out
    # a tenant's says nothing beside the binding
    labels = {"app.kubernetes.io/name": "nodedevice", "app.kubernetes.io/component": "agent"}
    spec = {"template": {"spec": {"serviceAccountName": "nodedevice-agent"}}}
    server.objects[DAEMON_SETS] = [{"metadata": {"name": "x", "namespace": "tenant", "labels": labels}, "spec": spec}]
    assert "--namespace gpus " in run("why", "node", "node-b").out


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (("device", "node-a", "gpu-0"), "It is free after its pod has ended"),
        (("device", "node-a", "gpu-1"), "kubectl nodedevice uncordon node-a --resource example.com/gpu --device gpu-1"),
        (("device", "node-a", "gpu-2"), "Reset the GPU or reboot its node"),
        (("node", "node-a"), "kubectl nodedevice uncordon node-a"),
        (("node", "node-z"), "kubectl get nodes"),
        (("device", "node-z", "gpu-0"), "node node-z does not exist; kubectl get nodes"),
    ],
)
def test_a_node_and_a_device_end_in_a_remedy(run: Run, words: tuple[str, ...], remedy: str) -> None:
    ran = run("why", *words)
    assert remedy in ran.out + ran.err
    assert " requests " not in ran.out
    assert "It gets devices" not in ran.out
