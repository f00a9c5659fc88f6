"""`helm uninstall` takes back all that was written, and touches no pod; the kinds go only where that was asked for."""

import json

import pytest
from nodedevice_api import names

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.e2e.chart.cluster import NODE, ChartCluster
from tests.e2e.chart.workloads import user

GPU = "example.com/gpu"
BUILT_IN = {"config": {"plugins": {"simulated": [{"resourceName": GPU, "count": 2}]}}}
KINDS = {"nodedevices.nodedevice.io", "poddevices.nodedevice.io"}
_CLUSTER_WIDE = (
    "mutatingadmissionpolicies",
    "mutatingadmissionpolicybindings",
    "validatingadmissionpolicies",
    "validatingadmissionpolicybindings",
    "clusterroles",
    "clusterrolebindings",
)
_IN_NAMESPACE = "pods,jobs,daemonsets,deployments,services,leases,poddisruptionbudgets,roles,rolebindings"
# of the control plane, for the player of Nodes
_NOT_OURS = "nodedevice-test:"


@pytest.mark.parametrize("kept", [True, False], ids=["kinds are kept", "kinds go"])
def test_nothing_is_left(cluster: ChartCluster, kept: bool) -> None:
    cluster.release.install(cluster.values(agents=BUILT_IN, nodeLabels="on", nodeTaint="on", crds={"keep": kept}))
    cluster.wait_capacity(GPU, 2)
    cluster.run(user("stays", {GPU: 1}))
    _cordon(cluster)
    cluster.wait(lambda: bool(_traces(cluster.get("node", NODE))), "the Node has labels of ours")
    theirs = cluster.containers("default")
    cluster.release.uninstall()
    node = cluster.get("node", NODE)
    assert GPU not in {**node["status"]["capacity"], **node["status"]["allocatable"]}
    assert _traces(node) == []
    assert not node["metadata"].get("finalizers")
    left = {f"{kind}/{name}" for kind in _CLUSTER_WIDE for name in cluster.names_of(kind) if _is_ours(name)}
    assert left == set()
    assert cluster.names_of(_IN_NAMESPACE, "-n", SYSTEM_NAMESPACE) == set()
    assert cluster.names_of("serviceaccounts", "-n", SYSTEM_NAMESPACE) == {"default"}
    assert names.AGENTS_NAMESPACE not in cluster.names_of("namespaces")
    assert cluster.containers("default") == theirs, "a pod was hurt"
    assert cluster.names_of("crds") & KINDS == (KINDS if kept else set())
    if kept:
        # an administrator's word is not ours to throw away
        (cordoned,) = cluster.get("nodedevices")["items"]
        assert [device["reason"] for device in cordoned["spec"]["cordonedDevices"]] == ["fan"]
        assert not cluster.names_of("poddevices", "-A")


def _cordon(cluster: ChartCluster) -> None:
    patch = {"spec": {"cordonedDevices": [{"id": "gpu-9", "reason": "fan"}]}}
    name = names.node_device_name(NODE, GPU)
    cluster.control_plane.kubectl("patch", "nodedevice", name, "--type=merge", "-p", json.dumps(patch))


def _traces(node: dict[str, object]) -> list[str]:
    """Labels, annotations and taints of a Node that are ours, in any place of it."""
    text = json.dumps({key: node[key] for key in ("metadata", "spec")})
    return [text] if f"{names.GROUP}/" in text else []


def _is_ours(name: str) -> bool:
    return "nodedevice" in name and not name.startswith(_NOT_OURS)
