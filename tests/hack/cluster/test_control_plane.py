"""Is what the other tests stand on really a Kubernetes control plane, and does nothing of it stay behind?"""

import base64
import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hack.cluster.build.pins import family_of
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.errors import CommandError, FolderError
from hack.cluster.waiting import wait_until

_ROOT = Path(__file__).parents[3]
_PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="module")
def node(control_plane: ControlPlane) -> Any:
    name = "control-plane-test"
    control_plane.add_node(name)
    yield name
    control_plane.remove_node(name)


def _pod(name: str, node: str, limits: dict[str, str] | None = None) -> str:
    container = {"name": "main", "image": "none", "resources": {"limits": limits or {}}}
    spec = {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})


def _run_pod(control_plane: ControlPlane, namespace: str, node: str, name: str) -> None:
    control_plane.kubectl("create", "--namespace", namespace, "-f", "-", stdin=_pod(name, node))
    control_plane.kubectl("wait", "--namespace", namespace, "--for=condition=Ready", f"pod/{name}", "--timeout=60s")


def _get(control_plane: ControlPlane, *what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(control_plane.kubectl("get", *what, "-o", "json"))
    return found


# whoever brings programs of their own chooses the version: only what is built here is pinned
@pytest.mark.skipif("KUBEBUILDER_ASSETS" in os.environ, reason="KUBEBUILDER_ASSETS may hold any version: unset it")
def test_server_and_kubectl_are_the_pinned_version(control_plane: ControlPlane) -> None:
    versions = json.loads(control_plane.kubectl("version", "-o", "json"))
    pinned = family_of("kube-apiserver").version
    assert [versions[side]["gitVersion"] for side in ("clientVersion", "serverVersion")] == [pinned, pinned]


def test_a_played_node_has_its_capacity_from_the_kubelet(control_plane: ControlPlane, node: str) -> None:
    metadata = _get(control_plane, "node", node, "--show-managed-fields")["metadata"]
    owners = {field["manager"] for field in metadata["managedFields"] if "f:capacity" in json.dumps(field["fieldsV1"])}
    assert owners == {"kubelet"}
    control_plane.kubectl("wait", "--namespace=kube-node-lease", "--for=create", f"lease/{node}", "--timeout=60s")


def test_a_foreign_node_is_not_changed(control_plane: ControlPlane, node: str) -> None:
    stranger = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a-stranger"}}
    control_plane.apply(yaml.safe_dump(stranger))
    try:
        # KWOK got to know the stranger before this one, which it now has made Ready
        control_plane.add_node("after-the-stranger")
        conditions = _get(control_plane, "node", "a-stranger")["status"].get("conditions", [])
        assert not [condition for condition in conditions if condition["status"] == "True"]
    finally:
        control_plane.kubectl("delete", "node", "a-stranger", "after-the-stranger", "--ignore-not-found")


def test_a_bound_token_carries_its_node(control_plane: ControlPlane, namespace: str, node: str, tmp_path: Path) -> None:
    path = control_plane.service_account_kubeconfig(namespace, "default", tmp_path / "agent.kubeconfig", node_name=node)
    assert path.stat().st_mode & 0o777 == 0o600
    review = json.loads(control_plane.kubectl("--kubeconfig", str(path), "auth", "whoami", "-o", "json"))
    user = review["status"]["userInfo"]
    assert user["username"] == f"system:serviceaccount:{namespace}:default"
    assert user["extra"]["authentication.kubernetes.io/node-name"] == [node]


def test_a_token_outlives_a_cluster_that_stays(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    """Nobody renews it, and `make up` is there until `make down`."""
    path = control_plane.service_account_kubeconfig(namespace, "default", tmp_path / "agent.kubeconfig")
    payload = path.with_name(f"{path.name}.token").read_text().split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] - claims["iat"] > 300 * 24 * 3600


def test_rbac_refuses_who_has_no_role(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> None:
    path = control_plane.service_account_kubeconfig(namespace, "default", tmp_path / "nobody.kubeconfig")
    with pytest.raises(CommandError, match="forbidden"):
        control_plane.kubectl("--kubeconfig", str(path), "get", "nodes")


def test_requests_are_in_the_audit_log(control_plane: ControlPlane, namespace: str) -> None:
    control_plane.kubectl("create", "configmap", "audited", "--namespace", namespace)

    def is_logged() -> bool:
        return any(
            event["verb"] == "create"
            and event["user"]["username"] == "nodedevice-test:admin"
            and event["objectRef"].get("name") == "audited"
            and event["objectRef"].get("namespace") == namespace
            for event in control_plane.audit_events()
            if "objectRef" in event
        )

    wait_until(is_logged, "the request is in the audit log", _PATIENCE_SECONDS)


def test_a_pod_is_scheduled_runs_and_is_removed(control_plane: ControlPlane, namespace: str, node: str) -> None:
    _run_pod(control_plane, namespace, node, "plain")
    pod = _get(control_plane, "pod", "plain", "--namespace", namespace)
    assert (pod["spec"]["nodeName"], pod["status"]["phase"]) == (node, "Running")
    control_plane.kubectl("delete", "pod", "plain", "--namespace", namespace, "--timeout=60s")
    assert control_plane.kubectl("get", "pods", "--namespace", namespace) == ""


def test_an_unschedulable_pod_shows_what_is_missing(control_plane: ControlPlane, namespace: str, node: str) -> None:
    pod = _pod("greedy", node, {"example.com/absent": "1"})
    control_plane.kubectl("create", "--namespace", namespace, "-f", "-", stdin=pod)
    control_plane.kubectl(
        "wait", "--namespace", namespace, "--for=condition=PodScheduled=false", "pod/greedy", "--timeout=60s"
    )
    status = _get(control_plane, "pod", "greedy", "--namespace", namespace)["status"]
    assert status["phase"] == "Pending"
    assert "Insufficient example.com/absent" in status["conditions"][0]["message"]


def test_a_pod_whose_end_was_written_stays_ended(control_plane: ControlPlane, namespace: str, node: str) -> None:
    _run_pod(control_plane, namespace, node, "ends")
    done = json.dumps({"status": {"phase": "Succeeded"}})
    control_plane.kubectl("patch", "pod", "ends", "--namespace", namespace, "--subresource=status", "-p", done)
    # KWOK saw that write before it saw this pod
    _run_pod(control_plane, namespace, node, "later")
    phases = {
        pod["metadata"]["name"]: pod["status"]["phase"]
        for pod in _get(control_plane, "pods", "--namespace", namespace)["items"]
    }
    assert phases == {"ends": "Succeeded", "later": "Running"}


def test_a_jobs_pod_completes(control_plane: ControlPlane, namespace: str, node: str) -> None:
    control_plane.kubectl("create", "job", "work", "--image=none", "--namespace", namespace)
    control_plane.kubectl("wait", "--namespace", namespace, "--for=condition=complete", "job/work", "--timeout=60s")


def test_an_outage_of_the_api_server_keeps_the_data(control_plane: ControlPlane, namespace: str, node: str) -> None:
    before = _get(control_plane, "namespace", namespace)["metadata"]["uid"]
    control_plane.stop_apiserver()
    try:
        with pytest.raises(CommandError, match="refused"):
            control_plane.kubectl("get", "namespace", namespace)
        paused = {
            name for name, pid in control_plane.pids().items() if psutil.Process(pid).status() == psutil.STATUS_STOPPED
        }
        assert paused == {"kube-scheduler", "kube-controller-manager", "kwok"}
    finally:
        control_plane.start_apiserver()
    assert _get(control_plane, "namespace", namespace)["metadata"]["uid"] == before
    # the controllers have found it again
    control_plane.add_namespace(f"{namespace}-later")
    control_plane.remove_namespace(f"{namespace}-later")
    _run_pod(control_plane, namespace, node, "after-the-outage")


def test_a_folder_with_somebodys_files_is_refused(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(FolderError, match="not empty"):
        ControlPlane.start(tmp_path)
    assert (tmp_path / "precious").exists()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0), (signal.SIGINT, 0)], ids=str
)
def test_nothing_outlives_the_starter(tmp_path: Path, how: signal.Signals, status: int) -> None:
    folder = tmp_path / "control-plane"
    command = [sys.executable, "-m", "hack.cluster", "up", "--folder", str(folder)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline() == f"export KUBECONFIG={folder}/admin.kubeconfig\n"
            children = psutil.Process(starter.pid).children(recursive=True)
            assert {child.name() for child in children} >= {"etcd", "kube-apiserver", "kube-scheduler", "kwok"}
            endings = [os.pidfd_open(child.pid) for child in children]
            starter.send_signal(how)
            assert starter.wait(_PATIENCE_SECONDS) == status
        finally:
            starter.kill()
    for ending in endings:
        assert select.select([ending], [], [], _PATIENCE_SECONDS)[0], "a process is still there"
        os.close(ending)
    assert not folder.exists()
