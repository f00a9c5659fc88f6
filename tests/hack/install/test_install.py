"""`make install` on clusters of stand-ins: what is typed, in which order, and what is refused."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from hack.install.cluster import Cluster
from tests.cluster.waiting import wait_until
from tests.hack.install import stand_ins
from tests.hack.install.stand_ins import Answers, Json, World, built, installed, node, release, running

ROOT = Path(__file__).parents[3]
_KIND = node("lab-control-plane", provider="kind://docker/lab/lab-control-plane")
_K3D = node("k3d-lab-server-0", kubelet="v1.34.3+k3s1")
_MINIKUBE = node("mini", labels={"minikube.k8s.io/name": "mini"})
_PROGRAMS = {"kind": _KIND, "k3d": _K3D, "minikube": _MINIKUBE}
_LOADS = {
    "kind": "kind load image-archive {} --name lab",
    "k3d": "k3d image import {} --cluster lab",
    "minikube": "minikube --profile mini image load {}",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return stand_ins.world(tmp_path)


def _on_kind(world: World) -> None:
    """A cluster of kind, and images that are built already."""
    world.program("kind")
    world.run_by([_KIND])
    built(world)


@pytest.mark.parametrize("program", _PROGRAMS)
def test_clusters_with_a_load_command_of_their_own(world: World, program: str) -> None:
    """Loaded under a tag, which the chart names, and nobody pulls."""
    world.program(program)
    world.run_by([_PROGRAMS[program]])
    running(world)
    built(world)
    done = world.run("install")
    assert not done.error
    archives = sorted((world.folder / "nodedevice/install").glob("*.tar"))
    assert world.calls(program) == [f"{program} {_LOADS[program].partition(' ')[2].format(path)}" for path in archives]
    values = world.values()
    assert values["image"] == {"registry": "localhost", "tag": "", "pullPolicy": "Never"}
    for part, path in zip(("agents", "operator"), archives, strict=True):
        assert values[part]["image"]["digest"] == ""
        assert values[part]["image"]["tag"] in path.name
    assert values["agents"]["image"]["tag"].startswith("dev-")
    # the way is named before the first load, and what to type next comes last
    printed = done.output
    assert printed.index(
        f"to the nodes by `{_LOADS[program].partition(' {')[0].replace(' --profile mini', '')}"
    ) < printed.index(": to the nodes\n")
    assert "kubectl apply -f - <<'EOF'" in printed
    assert "example.com/fuse: 1" in printed


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"planned": {"manifest": "x: 2", "config": {}}}, id="sources or values"),
        pytest.param({"differs": "1"}, id="an object was deleted or edited"),
        pytest.param({"pods": {"items": []}}, id="it does not run"),
        pytest.param({"crds": {"items": []}}, id="the kinds are gone"),
        pytest.param({"release": {"info": {"status": "failed"}, "manifest": "x: 1"}}, id="it had failed"),
    ],
)
def test_what_changed_is_changed(world: World, changed: Answers) -> None:
    _on_kind(world)
    installed(world)
    world.answers(changed)
    done = world.run("install", "--timeout-seconds", "0.1")
    assert [line.split()[:2] for line in world.calls("kind")] == [["kind", "load"], ["kind", "load"]], done.error
    # values of its own stay; only a first install offers a device of ours
    [upgrade] = [line for line in world.changes() if line.startswith("helm upgrade")]
    assert "--reset-then-reuse-values" in upgrade
    assert "first.json" not in upgrade


def test_a_first_install_offers_a_device_unless_values_do(world: World, tmp_path: Path) -> None:
    _on_kind(world)
    running(world)
    assert "offers example.com/fuse" in world.run("install").output
    assert "first.json" in world.calls("helm")[-1]
    mine = tmp_path / "mine.yaml"
    mine.write_text("{}")
    done = world.run("install", "--values", str(mine))
    assert "offers example.com/fuse" not in done.output
    assert f"--values {mine} --values " in world.calls("helm")[-1]


def _nodes(*nodes: Json) -> Answers:
    return {"nodes": {"items": [*nodes]}}


def _workload(kind: str, name: str, namespace: str) -> Answers:
    return {"workloads": {"items": [{"kind": kind, "metadata": {"name": name, "namespace": namespace}}]}}


_NEWER_KIND = {"name": "a.nodedevice.io", "annotations": {"nodedevice.io/release": "99.0.0"}}
_UNREACHABLE = "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?\n"


def test_a_label_of_a_tenant_is_no_install(world: World) -> None:
    """Whose accounts have no rights of the chart."""
    world.run_by([node("a")])
    world.answers(_workload("Deployment", "innocent", "tenant-a"))
    assert "tenant-a" not in world.run("install", "--plan", "--registry", "r.example.com/x").error


def test_paths_of_a_kubeconfig_start_from_its_folder(world: World) -> None:
    """kubectl prints them as they are written, and the copy is in another folder."""
    user = {"tokenFile": "token", "exec": {"command": "./login"}}
    content = {**json.loads((world.folder / "kubeconfig").read_text()), "users": [{"name": "lab", "user": user}]}
    folder = world.folder / "clusters"
    folder.mkdir()
    (folder / "config").write_text(json.dumps(content))
    world.answer("kubeconfig", content)
    with mock.patch.dict(os.environ, {**world.environment, "KUBECONFIG": str(folder / "config")}):
        copy = Cluster(world.folder, lambda _: None).kubeconfig
    [found] = json.loads(copy.read_text())["users"]
    assert found["user"] == {"tokenFile": str(folder / "token"), "exec": {"command": str(folder / "login")}}


@pytest.mark.parametrize(
    ("spoiled", "message"),
    [
        pytest.param({"kubeconfig": "{}"}, "no current kubeconfig .*: set KUBECONFIG", id="no kubeconfig"),
        pytest.param(
            {"refusal": _UNREACHABLE},
            "asking the API server https://127.0.0.1:6443 of the context lab failed",
            id="unreachable",
        ),
        pytest.param(
            {"version": {"major": "1", "minor": "32+", "gitVersion": "v1.32.0"}},
            "Kubernetes v1.32.0 is too old: it takes 1.34 or newer",
            id="too old",
        ),
        pytest.param({"no-rights": ""}, "may not create namespaces, .*cluster-admin", id="no rights"),
        pytest.param(
            stand_ins.OWNED_BY_ANOTHER,
            "the release theirs in the namespace b, .*Nothing was changed",
            id="another release",
        ),
        pytest.param(
            _workload("DaemonSet", "nodedevice-agent", "nodedevice-system"),
            "as a manifest in the namespace nodedevice-system",
            id="installed by a manifest",
        ),
        pytest.param(
            {"crds": {"items": [{"metadata": _NEWER_KIND}]}},
            "kind a.nodedevice.io is of release 99.0.0, newer than this tree",
            id="newer kinds",
        ),
        pytest.param(
            {"releases": [release(status="pending-upgrade")]}, "is pending-upgrade: .*helm rollback", id="cut off"
        ),
        pytest.param(
            _nodes(node(architecture="s390x", provider="kind://docker/lab/a")),
            "a node of the architecture s390x, and images are made for amd64 and arm64",
            id="architecture",
        ),
        pytest.param(_nodes(node("pi")), "(?s)to pi .*there are three ways.*Nothing was changed", id="no way"),
    ],
)
def test_what_is_refused_changes_nothing(world: World, spoiled: Answers, message: str) -> None:
    _on_kind(world)
    world.answers(spoiled)
    done = world.run("install")
    assert re.search(message, done.error), done.error
    assert done.error.startswith("install: ")
    if "three ways" not in message:
        assert "\n" not in done.error, "not in one line"
    assert world.changes() == []


def test_helm_ends_in_its_own_way_when_it_is_interrupted(world: World) -> None:
    """It writes down that it was: otherwise nobody could upgrade that release any more."""
    _on_kind(world)
    # longer than Python waits by itself for a program that was interrupted with it
    waits = (
        "trap 'kill $!; sleep 1; echo helm ended >> {folder}/calls; exit 1' INT; touch {folder}/waits; sleep 600 & wait"
    )
    world.program("helm", f'case "$*" in *--hide-notes*) {waits} ;; esac\n{stand_ins.HELM}')
    (world.folder / "calls").touch()
    command = [sys.executable, "-m", "hack.install", "install"]
    typed = subprocess.Popen(
        command, cwd=ROOT, env=world.environment, start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until((world.folder / "waits").exists, "Helm is at work")
        os.killpg(typed.pid, signal.SIGINT)
        _, complaint = typed.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(typed.pid, signal.SIGKILL)
    assert complaint == "install: interrupted; repeat the command to continue\n"
    assert "helm ended" in world.calls()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--registry", "https://registry"], "REGISTRY=https://registry is not a prefix of an image"),
        (["--values", "nowhere.yaml"], "VALUES=nowhere.yaml is not a file"),
    ],
    ids=["registry", "values"],
)
def test_arguments_are_checked_before_anybody_is_asked(world: World, arguments: list[str], message: str) -> None:
    done = world.run("install", *arguments)
    assert message in done.error
    assert world.calls() == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("agents:\n\thttpPort: 1\n", "it is not YAML: YAML is indented by spaces, and this has a tab in line 2"),
        ("agents: {httpPort: 1}\nagents: {}\n", "it has the key agents twice, in line 1 and in line 2"),
        ("agents: {podAnnotations: {a: true}}", "agents.podAnnotations.a: true is not text: put it in quotes"),
        ("agents: {conifg: {}}", "agents.conifg: unknown key; did you mean config\\?"),
        (
            "agents: {config: {delivery: nrii}, httpPort: x}",
            "agents.config.delivery: .*agents.httpPort: .*number",
        ),
    ],
    ids=["tab", "twice", "annotation", "typo", "two"],
)
def test_values_are_checked_before_anybody_is_asked(world: World, content: str, message: str) -> None:
    """Where images cannot be brought, too: that hindrance came first, and hid this one."""
    world.run_by([node("pi")])
    mine = world.folder / "mine.yaml"
    mine.write_text(content)
    done = world.run("install", "--values", str(mine), "--plan")
    assert re.search(message, done.error)
    assert world.calls() == []


def test_a_plan_needs_no_helm(world: World) -> None:
    """It would be built first, for minutes."""
    (world.folder / "bin/helm").unlink()
    _on_kind(world)
    done = world.run("install", "--plan")
    assert not done.error
    assert "to the nodes by `kind load image-archive" in done.output
    assert "nothing was changed, as PLAN=1" in done.output
    assert world.changes() == []
    assert "new: the release nodedevice in the namespace nodedevice-system" in done.output
    assert "Helm is not on this machine" in done.output


def test_no_device_in_time_says_what_is_missing(world: World) -> None:
    _on_kind(world)
    running(world)
    waiting = {"reason": "ErrImageNeverPull", "message": "Container image is not present"}
    labels = {"app.kubernetes.io/component": "agent"}
    spec = {"nodeName": "a", "containers": [{"image": "a"}]}
    status = {"conditions": [], "containerStatuses": [{"state": {"waiting": waiting}}]}
    world.answer("pods", {"items": [{"metadata": {"labels": labels}, "spec": spec, "status": status}]})
    done = world.run("install", "--timeout-seconds", "0.1")
    assert re.search(
        r"no NodeDevice within 0 s \(the agent on a lacks its image a \(it is not on that node", done.error
    ), done.error
    # and at once, where that is seen
    assert "install: the agent on a lacks its image" in done.output
