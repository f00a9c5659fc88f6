"""What an administrator may switch on, on a real API server: evictions, the taint and the labels of Nodes; and off again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from nodedevice_operator.objects.node import TAINT

from tests.cluster.api import ApiError, Event, Object, Pod
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster

ON = ("--node-taint", "--node-labels", "--held-device-policy", "*=evict", "--eviction-delay-seconds", "0")
BUDGET = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: all-stay}
spec: {minAvailable: 1, selector: {matchLabels: {app: held}}}
"""


@pytest.fixture(scope="module")
def cluster(installed: ControlPlane) -> Iterator[ControlPlane]:
    """The chart gives the rights that go with the options."""
    install_chart(installed, {"evictions": True, "nodeTaint": "on", "nodeLabels": "on"})
    yield installed
    install_chart(installed)


@pytest.fixture
def operator(cluster: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    with OperatorProcess(cluster, tmp_path / "on", *ON).running() as process:
        yield process


@pytest.fixture
def node(cluster: ControlPlane, operator: OperatorProcess) -> Iterator[PlayedNode]:
    with PlayedNode(cluster) as made:
        made.renew_lease()
        made.make()
        yield made


def test_taint_and_labels_come_go_and_are_gone_when_switched_off(
    cluster: ControlPlane, operator: OperatorProcess, node: PlayedNode, tmp_path: Path
) -> None:
    cluster.kubectl("taint", "nodes", node.name, "example.com/foreign=x:NoSchedule")
    node.publish(healthy=2)
    name = "nodedevice.io/example.com.gpu"
    wait_until(lambda: node.labels() == {f"{name}.total": "2", f"{name}.healthy": "2"}, "the labels say 2 of 2")
    assert node.taints() == {"example.com/foreign"}
    node.publish(healthy=1, broken=1)
    wait_until(lambda: node.taints() == {"example.com/foreign", TAINT}, "the Node is tainted")
    wait_until(lambda: node.labels()[f"{name}.healthy"] == "1", "the labels say 1 of 2")
    node.publish(healthy=2)
    wait_until(lambda: node.taints() == {"example.com/foreign"}, "the taint is gone")
    node.publish(healthy=1, broken=1)
    wait_until(lambda: TAINT in node.taints(), "the Node is tainted again")

    operator.stop()
    with OperatorProcess(cluster, tmp_path / "off").running():
        wait_until(lambda: not node.labels() and node.taints() == {"example.com/foreign"}, "all marks are gone")


def running_pod(node: PlayedNode, namespace: str) -> str:
    """Make a pod on that node; its UID."""
    metadata = Object(name="held", namespace=namespace, labels={"app": "held"})
    spec = Object(
        nodeName=node.name,
        terminationGracePeriodSeconds=1,
        containers=[Object(name="main", image="none.invalid/none")],
    )
    made: Any = node.client.create(Pod(metadata=metadata, spec=spec))
    wait_until(lambda: phase(node, namespace) == "Running", "the pod runs")
    return str(made.metadata.uid)


def phase(node: PlayedNode, namespace: str) -> str | None:
    """Phase of the pod; None when it is gone or going."""
    try:
        pod: Any = node.client.get(Pod, "held", namespace=namespace)
    except ApiError as error:
        if error.status.code != 404:
            raise
        return None
    return None if pod.metadata.deletionTimestamp else str(pod.status.phase)


def pod_events(node: PlayedNode, namespace: str, reason: str) -> list[str]:
    return [str(event.message) for event in node.client.list(Event, namespace=namespace) if event.reason == reason]


@pytest.mark.kubelet("weak spot 11")
def test_a_pod_whose_device_breaks_is_evicted_when_its_budget_allows(
    cluster: ControlPlane, operator: OperatorProcess, node: PlayedNode, namespace: str
) -> None:
    uid = running_pod(node, namespace)
    cluster.kubectl("apply", "--namespace", namespace, "-f", "-", stdin=BUDGET)
    get = ["get", "pdb", "all-stay", "--namespace", namespace, "-o", "json"]
    wait_until(
        lambda: json.loads(cluster.kubectl(*get)).get("status", {}).get("expectedPods") == 1, "the budget counts it", 20
    )
    held = [allocation(uid, "main", "gpu-1", namespace=namespace, name="held")]
    node.advertise(2, allocations=held)
    node.publish(healthy=1, broken=1, allocations=held)
    wait_until(lambda: pod_events(node, namespace, "DeviceEvictionRefused") != [], "the budget is in the way")
    assert phase(node, namespace) == "Running"
    cluster.kubectl("delete", "pdb", "all-stay", "--namespace", namespace)
    wait_until(lambda: phase(node, namespace) is None, "the pod is evicted")
    wait_until(lambda: pod_events(node, namespace, "DeviceEviction") != [], "it is reported")
    assert pod_events(node, namespace, "DeviceEviction") == [f"evicted from {node.name}: gpu-1 of {GPU} unhealthy"]
    assert len(pod_events(node, namespace, "DeviceEvictionRefused")) == 1
    assert not [line for line in operator.lines() if line["event"].startswith("API server is unreachable")]
    # nobody plays the end of its container here
    cluster.kubectl("delete", "pod", "held", "--namespace", namespace, "--grace-period=0", "--force", check=False)
