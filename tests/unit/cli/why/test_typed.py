"""`why` as it is typed, of pods that controllers have not made, or that wait for their own: nothing false is named."""

import re
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.unit.cli.api_server import DAEMON_SETS, LEASES, PODS, FakeApiServer
from tests.unit.cli.conftest import Run
from tests.unit.cli.objects import labels_of, lease, pod
from tests.unit.cli.why.test_readers import asked, codes

APPS: Final = "/apis/apps/v1"
JOBS, SETS = "/apis/batch/v1/jobs", f"{APPS}/statefulsets"
WORKLOADS: Final = "/apis/kueue.x-k8s.io/v1beta2/workloads"


def controller(name: str, **spec: Any) -> dict[str, Any]:
    template = {"metadata": {}, "spec": pod(node="")["spec"]}
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"metadata": meta, "spec": {"template": template, **spec}, "status": {}}


def owned(found: dict[str, Any], owner: str) -> dict[str, Any]:
    kind, _, name = owner.partition("/")
    found["metadata"]["ownerReferences"] = [{"kind": kind, "name": name, "controller": True}]
    return found


@pytest.mark.parametrize(
    ("path", "made", "name", "code", "line"),
    [
        (JOBS, controller("train", suspend=True), "train", "JobSuspended", "kubectl patch job/train -"),
        (SETS, controller("db", replicas=2), "db-1", "EarlierPodNotReady", "kubectl nodedevice why pod db-0"),
    ],
)
def test_a_controller_that_makes_no_pod_is_asked_why(
    run: Run, server: FakeApiServer, path: str, made: dict[str, Any], name: str, code: str, line: str
) -> None:
    server.objects[path] = [made]
    server.objects[PODS].append(owned(pod("db-0", phase="Pending"), "StatefulSet/db"))
    ran = run("why", "pod", name)
    assert (ran.status, f"[{code}]\n" in ran.out, line in ran.out) == (1, True, True), ran


def test_no_line_takes_a_gate_off(run: Run, server: FakeApiServer) -> None:
    gated = pod("gated", node="", phase="Pending")
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}, {"name": "example.com/other"}]
    server.objects[PODS].append(gated)
    server.objects[WORKLOADS] = []
    ran = run("why", "pod", "gated")
    assert re.findall(r"\[(\w+)\]\n", ran.out)[:2] == ["QueueWaits", "SchedulingGated"]
    assert "schedulingGates" not in ran.out


def test_the_agents_leases_are_found_in_another_namespace(run: Run, server: FakeApiServer) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000000Z")
    server.objects[LEASES] = [lease(name, "gpu-agents", now) for name in ("node-a", "node-b")]
    assert codes(asked(run, "node", "node-b")) == ["NoAgent"]
    account = {"name": "nodedevice-agent", "namespace": "gpus"}
    metadata = {"name": "nodedevice-agent", "annotations": {"nodedevice.io/leases-namespace": "gpu-agents"}}
    bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    server.objects[bindings] = [{"metadata": metadata, "subjects": [account]}]
    assert codes(asked(run, "node", "node-b")) == []
    server.objects[LEASES] = []
    assert "--namespace gpus " in run("why", "node", "node-b").out
    # a tenant's says nothing beside the binding
    metadata = {"name": "x", "namespace": "tenant", "labels": labels_of("agent")}
    spec = {"template": {"spec": {"serviceAccountName": "nodedevice-agent"}}}
    server.objects[DAEMON_SETS] = [{"metadata": metadata, "spec": spec}]
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
