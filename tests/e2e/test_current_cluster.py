"""CLUSTER=current with `make demo`, `make up` and `make down`, tried on a control plane that stands for kind or minikube."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.current import CurrentCluster
from tests.cluster.local.how_to_use import TYPED
from tests.cluster.local.stack import NODE_A, NODE_B
from tests.cluster.waiting import wait_until
from tests.e2e.pages import local_cluster, typed_in_one_shell

_ROOT = Path(__file__).parents[2]
_DEMO = [sys.executable, "-u", "-m", "hack.demo"]
_SHARES = [*_DEMO, "shares"]
# about a Node that somebody had before
_EARLIER_EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "earlier", "namespace": "default"},
    "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": NODE_A, "uid": "0123"},
    "reason": "Earlier",
}

# with the session's control plane up, its programs are built: nothing here waits for that
pytestmark = pytest.mark.usefixtures("control_plane")


@pytest.fixture(scope="module")
def theirs() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="nd-theirs-") as folder, ControlPlane.start(Path(folder) / "c") as made:
        yield made


def _objects(cluster: ControlPlane) -> set[str]:
    """Whatever a visitor could leave behind, by kind and name."""
    kinds = (
        "nodes,namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,"
        "validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    )
    everywhere = cluster.kubectl("get", "serviceaccounts,configmaps,leases,roles,rolebindings,pods", "-A", "-o", "name")
    return {*cluster.kubectl("get", kinds, "-o", "name").split(), *everywhere.split()}


def _events_of_node_a(cluster: ControlPlane) -> list[str]:
    """Reasons of the Events about it and its NodeDevices."""
    events = json.loads(cluster.kubectl("get", "events", "-A", "-o", "json"))["items"]
    return [event["reason"] for event in events if event["involvedObject"]["name"].startswith(NODE_A)]


def _environment(kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, "CLUSTER": "current", "KUBECONFIG": str(kubeconfig)}


def _demo(kubeconfig: Path, command: Sequence[str] = _DEMO) -> "subprocess.CompletedProcess[str]":
    environment = _environment(kubeconfig)
    return subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False, env=environment)


def _killed_demo(kubeconfig: Path) -> int:
    """Its process ID; all that it brought stays."""
    environment = _environment(kubeconfig)
    with subprocess.Popen(_DEMO, cwd=_ROOT, stdout=subprocess.PIPE, text=True, env=environment) as demo:
        assert demo.stdout is not None
        assert any("operator and agents are ready" in line for line in demo.stdout)
        started = psutil.Process(demo.pid).children(recursive=True)
        demo.kill()
    psutil.wait_procs(started, timeout=60)
    return demo.pid


@pytest.mark.parametrize("command", [_DEMO, _SHARES], ids=["devices", "shares"])
def test_demo_uses_it_and_leaves_it_as_it_was(own_temp: Path, theirs: ControlPlane, command: Sequence[str]) -> None:
    """Also where a second scheduler has rights in kube-system."""
    before = _objects(theirs)
    done = _demo(theirs.admin_kubeconfig, command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "using the cluster of the context nodedevice-test" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")
    assert _objects(theirs) == before
    assert _events_of_node_a(theirs) == []


def test_pods_of_others_stay_off_its_nodes(own_temp: Path, theirs: ControlPlane) -> None:
    """Also those that tolerate every taint, as soon as it ends; and the output shows how to try it out."""
    before = _objects(theirs)
    environment = _environment(theirs.admin_kubeconfig)
    bold = _deployment("bold", [{"operator": "Exists"}])
    theirs.apply(yaml.safe_dump_all([_deployment("ordinary"), bold, _EARLIER_EVENT]))
    try:
        up = local_cluster("up", environment)
        assert up.returncode == 0, up.stdout + up.stderr
        wait_until(lambda: len(_kept_off(theirs, "ordinary")) == 2, "the scheduler has tried both")
        printed = [line for line in up.stdout.splitlines() if line.startswith(("export ", TYPED))]
        outputs = typed_in_one_shell([line.removeprefix(TYPED) for line in printed], Path("/"))
        [held] = [output for line, output in outputs.items() if line.endswith("get poddevices")]
        assert held.splitlines()[-1].startswith("try ")
        wait_until(lambda: len(_on_our_nodes(theirs)) == 3, "what tolerates the taint is on the Nodes")
        assert {name.partition("-")[0] for name in _on_our_nodes(theirs)} == {"bold", "try"}
    finally:
        down = local_cluster("down", environment)
        reported = _events_of_node_a(theirs)
        theirs.kubectl("delete", "event", "earlier")
    assert (down.returncode, down.stdout) == (0, "the local cluster is down\n")
    assert _on_our_nodes(theirs) == []
    assert reported == ["Earlier"]
    theirs.kubectl("delete", "deployment", "ordinary", "bold", "--cascade=foreground", "--wait")
    assert _objects(theirs) == before


def test_what_a_killed_one_left_is_taken_away_by_the_next(
    theirs: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _objects(theirs)
    with tempfile.TemporaryDirectory(prefix="nd-", ignore_cleanup_errors=True) as short:
        monkeypatch.setenv("TMPDIR", short)
        killed = _killed_demo(theirs.admin_kubeconfig)
    assert {"node/node-a", "namespace/nodedevice-system"} <= _objects(theirs) - before
    monkeypatch.setenv("KUBECONFIG", str(theirs.admin_kubeconfig))
    lines: list[str] = []
    with CurrentCluster.start(tmp_path / "c", lines.append):
        assert _objects(theirs) == before
        assert _events_of_node_a(theirs) == []
    assert lines[0].startswith(f"taking away what process {killed} left when it was killed: Node/node-a")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("namespace/nodedevice-system", "has nodedevice already (nodedevice-system), and is not changed"),
        ("node/node-b", "has a Node node-b already, which is not changed"),
    ],
)
def test_existing_objects_are_not_changed(own_temp: Path, theirs: ControlPlane, name: str, message: str) -> None:
    kind, _, own = name.partition("/")
    theirs.apply(yaml.safe_dump({"apiVersion": "v1", "kind": kind.capitalize(), "metadata": {"name": own}}))
    before = _objects(theirs)
    done = _demo(theirs.admin_kubeconfig)
    assert done.returncode == 1
    assert message in done.stdout
    assert _objects(theirs) == before
    theirs.kubectl("delete", name)


def test_who_may_only_read_is_told_what_is_denied(own_temp: Path, tmp_path: Path, theirs: ControlPlane) -> None:
    theirs.kubectl("create", "serviceaccount", "reader", "-n", "default")
    theirs.kubectl("create", "clusterrole", "reader", "--verb=get,list,watch", "--resource=*.*")
    theirs.kubectl("create", "clusterrolebinding", "reader", "--clusterrole=reader", "--serviceaccount=default:reader")
    try:
        before = _objects(theirs)
        done = _demo(theirs.service_account_kubeconfig("default", "reader", tmp_path / "config"), _SHARES)
        assert (done.returncode, done.stderr) == (1, "")
        assert 'FAILED: nodes is forbidden: User "system:serviceaccount:default:reader" cannot create' in done.stdout
        assert _objects(theirs) == before
    finally:
        theirs.kubectl("delete", "clusterrolebinding,clusterrole", "reader")
        theirs.kubectl("delete", "serviceaccount", "reader", "-n", "default")


def _deployment(name: str, tolerations: Sequence[dict[str, str]] = ()) -> dict[str, Any]:
    """Two pods of somebody, that could run on any node but for its taints."""
    spec = {"containers": [{"name": "main", "image": "registry.example/app"}], "tolerations": list(tolerations)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": spec},
        },
    }


def _pods(cluster: ControlPlane) -> list[dict[str, Any]]:
    return list(json.loads(cluster.kubectl("get", "pods", "-n", "default", "-o", "json"))["items"])


def _kept_off(cluster: ControlPlane, app: str) -> list[str]:
    """Those of whom the scheduler says that they do not tolerate our Nodes' taint."""
    return [
        pod["metadata"]["name"]
        for pod in _pods(cluster)
        if pod["metadata"]["labels"].get("app") == app
        for condition in pod["status"].get("conditions", ())
        if "untolerated taint" in condition.get("message", "")
    ]


def _on_our_nodes(cluster: ControlPlane) -> list[str]:
    return [pod["metadata"]["name"] for pod in _pods(cluster) if pod["spec"].get("nodeName") in (NODE_A, NODE_B)]
