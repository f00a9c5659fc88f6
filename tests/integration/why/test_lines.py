"""The line that helps of each row of the table, run once as it is printed, by somebody with the role that it is shown to.

What it names is there: a pod, a node with devices of which one is cordoned, a quota, a controller, and so on.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Meta
from kubectl_nodedevice.why.controllers.controller import Controller
from kubectl_nodedevice.why.controllers.rollouts import fields
from kubectl_nodedevice.why.reasons.rights import OF_THE_POD, OF_THE_RELEASE, Access, Role
from kubectl_nodedevice.why.reasons.row import Row, line_of
from kubectl_nodedevice.why.reasons.table import TABLE

from tests.cluster.api import NodeDevice, Object, PatchType, Pod, ServiceAccount
from tests.cluster.build.binaries import find
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.why.absent import QUEUE
from tests.integration.why.situations import MAKERS, PROGRAM, Situation, ask, workload
from tests.unit.cli.test_pasted import as_shown

# how each role is bound, as the chart's notes and security.md say it
_BINDINGS: dict[Role, tuple[str, ...]] = {
    Role.VIEW: ("rolebinding --clusterrole=view --namespace={own}",),
    Role.EDIT: ("rolebinding --clusterrole=edit --namespace={own}",),
    Role.FLEET_VIEW: (
        "clusterrolebinding --clusterrole=nodedevice-fleet-view",
        "rolebinding --role=nodedevice-fleet-view --namespace=nodedevice-agents",
        f"rolebinding --role=nodedevice-fleet-view --namespace={SYSTEM_NAMESPACE}",
    ),
    Role.CORDON: ("clusterrolebinding --clusterrole=nodedevice-cordon",),
    Role.ADMIN: ("clusterrolebinding --clusterrole=cluster-admin",),
}


class Stage:
    """A situation with all that lines name. fields: of every line."""

    def __init__(self, cluster: ControlPlane, namespace: str, folder: Path, undo: ExitStack) -> None:
        self.cluster, self.namespace, self._folder, self._undo = cluster, namespace, folder, undo
        self._kubeconfigs: dict[Role, Path] = {}
        self.at = Situation(cluster, namespace, 0, is_bound=True)
        self.at.name = namespace
        self.at.make_nodes()
        self.at.make_agents()
        self.at.make_pod()
        undo.callback(self.at.remove)
        node = self.at.nodes[0]
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota", "namespace": namespace}}
        self.at.apply({**quota, "spec": {"hard": {"pods": "99"}}}, *_controllers(namespace))
        undo.callback(cluster.kubectl, "delete", MAKERS, "--all", "--namespace", namespace)
        self._queue()
        self.fields = {
            "namespace": namespace,
            "pod": namespace,
            "container": "main",
            "owner": "replicaset/web",
            "quota": "quota",
            "system": SYSTEM_NAMESPACE,
            "earlier": namespace,
            "scale_options": "scale deployment/shop --replicas 1",
            "workload_options": f"workloads.kueue.x-k8s.io pod-{namespace}",
            "resume_patch": '{"spec": {"suspend": false}}',
            "rollout_patch": fields(Controller("Deployment", Meta("shop")))["rollout_patch"],
            "scheduler_options": "events --all-namespaces --field-selector source=volcano",
            "node": node,
            "taint": "example.com/repair:NoSchedule",
            "resource": self.at.resource,
            "resource_options": f"--resource {self.at.resource}",
            "device": "gpu-0",
            "device_options": "--device gpu-0 --take-over",
            "node_device": self.at.node_device(node),
        }

    def _queue(self) -> None:
        """Kueue's kind, and one object of it."""
        self.cluster.apply(json.dumps(QUEUE))
        self._undo.callback(self.cluster.kubectl, "delete", "crd", QUEUE["metadata"]["name"])
        made = json.dumps(workload(self.at, "pod", self.at.name, self.at.uid))
        wait_until(
            lambda: "created" in self.cluster.kubectl("apply", "-f", "-", stdin=made, check=False),
            "there is a Workload",
        )

    def kubeconfig(self, role: Role) -> Path:
        """Of an account that has the role, and no other."""
        if role not in self._kubeconfigs:
            name = str(role)
            self.cluster.client.create(ServiceAccount(metadata=Object(name=name, namespace=self.namespace)))
            for number, binding in enumerate(_BINDINGS[role]):
                self._bind(name, f"{self.namespace}-{name}-{number}", binding.format(own=self.namespace).split())
            made = self.cluster.service_account_kubeconfig(self.namespace, name, self._folder / name)
            self._kubeconfigs[role] = made
        return self._kubeconfigs[role]

    def _bind(self, account: str, name: str, binding: list[str]) -> None:
        kind, *options = binding
        subject = f"--serviceaccount={self.namespace}:{account}"
        self.cluster.kubectl("create", kind, name, subject, *options)
        place = [each for each in options if each.startswith("--namespace")]
        self._undo.callback(self.cluster.kubectl, "delete", kind, name, "--ignore-not-found", *place)

    def run(self, line: str, role: Role) -> subprocess.CompletedProcess[str]:
        """In a shell, as a person types it, with kubectl and its plugin on the PATH."""
        kubectl = find(["kubectl"])["kubectl"].parent
        env = {
            **os.environ,
            "PATH": f"{PROGRAM.parent}:{kubectl}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.kubeconfig(role)),
            "HOME": str(self._folder),
        }
        return subprocess.run(["sh", "-c", line], check=False, capture_output=True, text=True, env=env)

    def may(self, access: Access, role: Role) -> bool:
        """What the API server says of the account."""
        places = {OF_THE_POD: self.namespace, OF_THE_RELEASE: SYSTEM_NAMESPACE}
        namespace = places.get(access.namespace, access.namespace)
        resource, _, subresource = access.resource.partition("/")
        kind = f"{resource}.{access.group}" if access.group else resource
        options = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        options += ["--subresource", subresource] if subresource else []
        kubeconfig = ["--kubeconfig", str(self.kubeconfig(role))]
        asked = (*kubeconfig, "auth", "can-i", access.verb, kind, *options)
        return self.cluster.kubectl(*asked, check=False).strip() == "yes"


def _controllers(namespace: str) -> Iterator[dict[str, Any]]:
    """None of them has a pod."""
    pod: dict[str, Any] = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "none"}]},
    }
    job = {**pod, "spec": {**pod["spec"], "restartPolicy": "Never"}}
    none: dict[str, Any] = {"replicas": 0, "selector": {"matchLabels": {"app": "web"}}, "template": pod}
    bodies: dict[tuple[str, str], dict[str, Any]] = {
        ("apps/v1 ReplicaSet", "web"): none,
        ("apps/v1 Deployment", "shop"): {**none, "paused": True},
        ("batch/v1 Job", "batch"): {"suspend": True, "template": job},
    }
    for (kind, name), spec in bodies.items():
        version, _, kind = kind.partition(" ")
        yield {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


@pytest.fixture(scope="module")
def stage(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    namespace = "why-lines"
    installed.add_namespace(namespace)
    with ExitStack() as undo:
        undo.callback(installed.remove_namespace, namespace, 0)
        yield Stage(installed, namespace, tmp_path_factory.mktemp("people"), undo)


_OWNERS = {
    "JobSuspended": "job/batch",
    "JobFailed": "job/batch",
    "DeploymentPaused": "deployment/shop",
    "HeldByPredecessor": "deployment/shop",
}


def _prepare(stage: Stage, row: Row) -> None:
    """What the line changes is there to be changed."""
    node, client = stage.at.nodes[0], stage.cluster.client
    if row.code == "NodeTaint":
        stage.cluster.kubectl("taint", "node", node, "example.com/repair=now:NoSchedule")
    if row.code == "DevicesCordoned":
        cordon = {"spec": {"cordonedDevices": [{"id": "gpu-0", "reason": "ecc", "by": "alice"}]}}
        client.patch(NodeDevice, stage.at.node_device(node), cordon, patch_type=PatchType.MERGE, field_manager="alice")
    if row.code == "DeploymentPaused":
        patch = '{"spec": {"paused": true}}'
        stage.cluster.kubectl("patch", "deployment/shop", "--namespace", stage.namespace, "--patch", patch)
    if row.line.text.startswith("kubectl delete pod"):
        _make_pod(stage, _doomed(row), terminationGracePeriodSeconds=0)


def _doomed(row: Row) -> str:
    return f"doomed-{row.code.lower()}"


def _make_pod(stage: Stage, name: str, **spec: Any) -> None:
    spec |= {"containers": [{"name": "main", "image": "none"}]}
    body: Any = Pod.from_dict({"metadata": {"name": name, "namespace": stage.namespace}, "spec": spec})
    stage.cluster.client.create(body)


def _fields(stage: Stage, row: Row) -> dict[str, str]:
    if "{owner}" in row.line.text and row.code in _OWNERS:
        return stage.fields | {"owner": _OWNERS[row.code]}
    if row.code == "NodeDeviceInvalid":
        return stage.fields | {"node_device": stage.at.node_device(stage.at.nodes[1])}
    if row.line.text.startswith("kubectl delete pod"):
        return stage.fields | {"pod": _doomed(row)}
    return stage.fields


def _rows() -> Iterator[Any]:
    """Each as it is for a pod, and as it is for a node or a device where that is another one."""
    for row in TABLE:
        words = dict.fromkeys(row.asked_of(subject) for subject in ("pod", "node", "device"))
        yield from (pytest.param(each, id=f"{row.code}-{number}") for number, each in enumerate(words))


@pytest.mark.parametrize("row", list(_rows()))
def test_the_line_can_be_run_by_whom_it_is_shown_to(stage: Stage, row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a terminal of 60 columns shows it."""
    _prepare(stage, row)
    monkeypatch.setenv("COLUMNS", "60")
    line = as_shown(line_of(row, _fields(stage, row)))
    wait_until(lambda: stage.may(row.line.needs, row.line.role), f"{row.line.role} may {row.line.needs}")
    done = stage.run(line, row.line.role)
    print(f"{row.line.role}$ {line}\n{done.stdout}{done.stderr}")
    assert "orbidden" not in done.stderr
    assert "nknown" not in done.stderr
    # without a kubelet there is no output, which the API server says after it has allowed it
    if not line.startswith("kubectl logs"):
        assert done.returncode in ((0, 1) if " nodedevice " in f" {line} " else (0,)), done.stderr


@pytest.mark.parametrize("role", list(Role))
def test_a_reader_with_any_role_has_an_answer(stage: Stage, role: Role) -> None:
    """Of the pod where they may see pods; what they may not read is named, with the role that may."""
    words = ["pod", stage.namespace, "--namespace", stage.namespace]
    if role in (Role.FLEET_VIEW, Role.CORDON):
        words = ["node", stage.at.nodes[1]]
    answer = ask(stage.kubeconfig(role), *words)
    unknown = {each["kind"]: each["role"] for each in answer["unknown"]}
    assert ("nodes" in unknown) == (role in (Role.VIEW, Role.EDIT, Role.CORDON))
    assert ("nodedevices.nodedevice.io" in unknown) == (role in (Role.VIEW, Role.EDIT))
    assert set(unknown.values()) <= {"view", "nodedevice-view", "nodedevice-fleet-view"}
