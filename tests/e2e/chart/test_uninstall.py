"""`helm uninstall` takes back all that was written, and touches no pod; the kinds go only where that was asked for."""

import json
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.e2e.chart.cluster import NODE, ChartCluster
from tests.e2e.chart.workloads import GPU, built_in, config, simulated, user

KINDS = {"nodedevices.nodedevice.io", "poddevices.nodedevice.io", "nodedeviceconfigs.nodedevice.io"}
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
    cluster.release.install(cluster.values(**built_in(2), nodeLabels="on", nodeTaint="on", crds={"keep": kept}))
    cluster.wait_capacity(GPU, 2)
    cluster.run(user("stays", {GPU: 1}))
    _cordon(cluster)
    cluster.apply(config("lab", simulated(1, "example.com/lab")))
    _break(cluster, "gpu-1")
    cluster.wait(lambda: _marked(cluster.get("node", NODE)) == {"labels", "taints"}, "the Node is marked by us")
    theirs = cluster.containers("default")
    cluster.release.uninstall()
    node = cluster.get("node", NODE)
    assert GPU not in {**node["status"]["capacity"], **node["status"]["allocatable"]}
    assert not _marked(node), node
    assert names.GROUP not in json.dumps({key: node[key] for key in ("metadata", "spec")})
    assert not node["metadata"].get("finalizers")
    left = {f"{kind}/{name}" for kind in _CLUSTER_WIDE for name in cluster.names_of(kind) if _is_ours(name)}
    assert left == set()
    assert cluster.names_of(_IN_NAMESPACE, "-n", SYSTEM_NAMESPACE) == set()
    assert cluster.names_of("serviceaccounts", "-n", SYSTEM_NAMESPACE) == {"default"}
    assert names.AGENTS_NAMESPACE not in cluster.names_of("namespaces")
    assert cluster.containers("default") == theirs, "a pod was hurt"
    assert cluster.names_of("crds") & KINDS == (KINDS if kept else set())
    if kept:
        assert cluster.names_of("nodedeviceconfigs") == {"lab"}
        # an administrator's word is not ours to throw away
        (cordoned,) = cluster.get("nodedevices")["items"]
        assert [device["reason"] for device in cordoned["spec"]["cordonedDevices"]] == ["fan"]
        assert not cluster.names_of("poddevices", "-A")


def _cordon(cluster: ChartCluster) -> None:
    patch = {"spec": {"cordonedDevices": [{"id": "gpu-9", "reason": "fan"}]}}
    name = names.node_device_name(NODE, GPU)
    cluster.control_plane.kubectl("patch", "nodedevice", name, "--type=merge", "-p", json.dumps(patch))


def _break(cluster: ChartCluster, device: str) -> None:
    (pod,) = cluster.names_of("pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/component=agent")
    program = ("python3", "-m", "nodedevice_agent", "simulate", "break", GPU, device)
    cluster.control_plane.kubectl("exec", "-n", SYSTEM_NAMESPACE, pod, "--", *program)


def _marked(node: dict[str, Any]) -> set[str]:
    """Where a Node has marks of ours."""
    marks = {"labels": node["metadata"].get("labels", {}), "taints": node["spec"].get("taints", [])}
    return {place for place, found in marks.items() if f"{names.GROUP}/" in json.dumps(found)}


def _is_ours(name: str) -> bool:
    return "nodedevice" in name and not name.startswith(_NOT_OURS)
