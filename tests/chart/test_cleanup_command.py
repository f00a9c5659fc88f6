"""What an uninstall takes back, on a real API server, with the rights of that hook alone; the operators are real too."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nodedevice_api import names
from nodedevice_operator.__main__ import main as operator_main
from nodedevice_operator.cli.api import SCHEDULERS
from nodedevice_operator.objects.node import TAINT
from nodedevice_operator.requiredplugins.policy import BINDINGS, NAME, POLICIES

from hack import yaml_text
from tests.chart.rendering import named, render
from tests.chart.values import Command
from tests.cluster.api import Node, PatchType, Pod
from tests.cluster.chart import SYSTEM_NAMESPACE, install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster

# as the chart calls it
UNINSTALL = ("cleanup", "--yes", "--delete-leases-namespace")
KEPT = {"crds": {"keep": True}}
ALL = {"crds": {"keep": False}}
# Helm lets it stay, for its log
FAILED_TEST = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "nodedevice-check", "namespace": SYSTEM_NAMESPACE},
    "spec": {"containers": [{"name": "check", "image": "nodedevice-operator"}]},
}


@pytest.fixture(autouse=True)
def _namespace_is_back(installed: ControlPlane) -> Iterator[None]:
    yield
    if names.AGENTS_NAMESPACE not in listed(installed, "namespaces"):
        install_chart(installed)


@pytest.fixture
def node(installed: ControlPlane) -> Iterator[PlayedNode]:
    with PlayedNode(installed) as made:
        made.renew_lease()
        for resource in (GPU, NIC):
            made.make(resource)
        yield made


@pytest.fixture
def used(installed: ControlPlane, node: PlayedNode, tmp_path: Path) -> Iterator[PlayedNode]:
    """A cluster as it is after some use: capacity, taint, labels, the policy; the operator that did it has ended."""
    install_chart(installed, {"nodeTaint": "on", "nodeLabels": "on"})
    with OperatorProcess(installed, tmp_path / "operator", "--node-taint", "--node-labels").running():
        node.advertise(3, broken=1, delivery=names.DELIVERY_NRI)
        node.advertise(2, NIC)
        wait_until(lambda: TAINT in node.taints() and bool(node.labels()), "taint and labels are there")
        wait_until(lambda: policies(installed) == {POLICIES, BINDINGS}, "the policy is there")
    yield node
    install_chart(installed)


def policies(cluster: ControlPlane) -> set[str]:
    return {
        kind for kind in (POLICIES, BINDINGS) if cluster.kubectl("get", kind, NAME, "--ignore-not-found", "-o", "name")
    }


def listed(cluster: ControlPlane, kind: str, *more: str) -> set[str]:
    printed = cluster.kubectl("get", kind, "-o", "json", *more)
    return {each["metadata"]["name"] for each in json.loads(printed)["items"]}


def test_nothing_is_left(installed: ControlPlane, used: PlayedNode, as_hook: Command) -> None:
    used.kubelet_writes(capacity={"example.com/foreign": "7"})
    installed.apply(json.dumps(a_pod_device(used.name)))
    installed.client.patch(
        Node, used.name, {"metadata": {"labels": {"nodedevice.io/team": "a"}}}, patch_type=PatchType.MERGE
    )
    status, printed = as_hook(*UNINSTALL)
    assert status == 0, printed
    assert (used.shown(), used.shown(NIC)) == ((None, None), (None, None))
    assert used.node.status.capacity["example.com/foreign"] == "7"
    assert used.taints() == set()
    assert used.labels() == {"nodedevice.io/team": "a"}  # an administrator's
    assert policies(installed) == set()
    assert listed(installed, names.NODE_DEVICES) == listed(installed, names.POD_DEVICES, "-A") == set()
    assert names.AGENTS_NAMESPACE not in listed(installed, "namespaces")
    assert names.OPERATOR_LEASE not in listed(installed, "leases", "-n", SYSTEM_NAMESPACE)
    assert f"Node {used.name}: removed {GPU}, {NIC}" in printed
    assert f"deleted {POLICIES} {NAME}" in printed
    assert "deleted 2 NodeDevices" in printed
    assert "deleted 1 PodDevices" in printed
    assert f"deleted namespace {names.AGENTS_NAMESPACE}, with the agents' Leases" in printed
    version = used.node.metadata.resourceVersion
    status, printed = as_hook(*UNINSTALL)
    assert (status, "Nodes: 0 of " in printed) == (0, True), printed
    assert used.node.metadata.resourceVersion == version


def test_a_dry_run_names_all_of_it_and_changes_nothing(installed: ControlPlane, used: PlayedNode) -> None:
    kinds = f"nodes,namespaces,leases,nodedevices,poddevices,{POLICIES},{BINDINGS},crds"
    installed.apply(json.dumps(a_pod_device(used.name)))
    stored = ("get", kinds, "--all-namespaces", "-o", "jsonpath={.items[*].metadata['name','resourceVersion']}")
    before, asked = installed.kubectl(*stored), len(list(installed.audit_events()))
    as_admin = ["--kubeconfig", str(installed.admin_kubeconfig), "--namespace", SYSTEM_NAMESPACE]
    done = CliRunner().invoke(operator_main, ["cleanup", *as_admin, "--dry-run", "--delete-leases-namespace"])
    assert done.exit_code == 0, done.output
    first, *lines, last = done.stdout.splitlines()
    assert first.startswith(f"cleanup of {installed.url} (context ")
    assert lines == [
        f"  no workload of ours is in namespace {SYSTEM_NAMESPACE} (--namespace names another)",
        f"  remove capacity, taint and labels of ours from 1 of 1 Nodes: {used.name}",
        f"  delete {BINDINGS} {NAME}, {POLICIES} {NAME}",
        "  delete 1 PodDevices; pods keep running, with the devices they have",
        "  delete 2 NodeDevices",
        f"  delete namespace {names.AGENTS_NAMESPACE}",
        "  keep the CRDs and every NodeDeviceConfig (--delete-crds deletes them)",
    ]
    assert last == "dry run: nothing was changed"
    requests = list(installed.audit_events())[asked:]
    verbs = {event["verb"] for event in requests if event.get("userAgent") == "nodedevice-operator"}
    assert verbs == {"get", "list"}
    assert installed.kubectl(*stored) == before


def test_the_kinds_go_only_where_asked_for(installed: ControlPlane, used: PlayedNode, as_hook: Command) -> None:
    status, printed = as_hook(*UNINSTALL, "--delete-crds", values=KEPT)
    assert status == 1
    assert "customresourcedefinitions" in printed  # no right to
    try:
        status, printed = as_hook(*UNINSTALL, "--delete-crds", values=ALL)
        assert status == 0, printed
        assert not [name for name in listed(installed, "crd") if name.endswith(names.GROUP)]
        # and once more, with nothing there at all
        assert as_hook(*UNINSTALL, "--delete-crds", values=ALL)[0] == 0
    finally:
        install_chart(installed)


def test_workloads_end_first(installed: ControlPlane, node: PlayedNode, as_hook: Command) -> None:
    values = {"scheduler": {"enabled": True, "managedResources": [GPU]}}
    workloads = [each for each in render(values) if each["kind"] in {"DaemonSet", "Deployment", "ConfigMap"}]
    manifests = [*workloads, named("ServiceAccount", "nodedevice-scheduler", values)]
    with ExitStack() as undo:
        installed.apply(yaml_text.dump_all([*manifests, FAILED_TEST]))
        undo.callback(installed.kubectl, "delete", "--ignore-not-found", "-f", "-", stdin=yaml_text.dump_all(manifests))

        def pods() -> list[Any]:
            found = installed.client.list(Pod, namespace=SYSTEM_NAMESPACE)
            return [pod for pod in found if pod.status and pod.status.phase == "Running"]

        wait_until(lambda: len(pods()) >= 5, "agents, operators and schedulers run")
        for lease in SCHEDULERS:
            installed.apply(json.dumps(a_lease(lease)))
        status, printed = as_hook(*UNINSTALL)
        assert status == 0, printed
        lines = printed.splitlines()
        begun = lines.index(f"deleting the workloads in namespace {SYSTEM_NAMESPACE}")
        assert lines[begun + 1 : begun + 5] == [
            "deleted deployments nodedevice-operator",
            "deleted deployments nodedevice-scheduler",
            "deleted daemonsets nodedevice-agent",
            "deleted pods nodedevice-check",
        ]
        assert pods() == []
        assert listed(installed, "leases", "-n", SYSTEM_NAMESPACE) == set()
        assert "nodedevice-check" not in listed(installed, "pods", "-n", SYSTEM_NAMESPACE)


def test_no_other_namespace_can_be_deleted(installed: ControlPlane, as_hook: Command) -> None:
    installed.add_namespace("not-ours")
    try:
        status, printed = as_hook(*UNINSTALL, "--leases-namespace", "not-ours")
        assert status == 1
        assert 'namespaces "not-ours" is forbidden' in printed
    finally:
        installed.remove_namespace("not-ours")


def a_lease(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": SYSTEM_NAMESPACE},
        "spec": {"holderIdentity": "somebody"},
    }


def a_pod_device(node: str) -> dict[str, Any]:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.POD_DEVICE,
        "metadata": {"name": "left-over", "namespace": "default"},
        "spec": {"nodeName": node, "podUID": "gone"},
    }
