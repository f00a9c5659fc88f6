"""The operator on a real API server: which Events pods and NodeDevices get as devices break, recover, or are not the pod's."""

import pytest

from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import GPU, PlayedNode


@pytest.mark.kubelet("weak spot 11")
def test_the_pod_that_holds_a_broken_device_gets_an_event_too(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    held = [pods.holds("pod-a", uid, "gpu-3")]
    node.publish(healthy=4, allocations=held)
    pods.wait_devices("pod-a", "gpu-3")
    node.publish(healthy=3, broken=1, allocations=held)
    matching = node.wait_events("DeviceUnhealthy", about="pod-a", namespace=pods.namespace)
    assert matching == [
        f"1 device (gpu-3) of {GPU} on {node.name} unhealthy (ReportedUnhealthy); in use by this pod until it ends"
    ]
    node.publish(healthy=4, allocations=held)
    matching = node.wait_events("DeviceRecovered", about="pod-a", namespace=pods.namespace)
    assert matching == [f"1 device (gpu-3) of {GPU} on {node.name} healthy again"]


def test_an_allocation_of_a_pod_on_another_node_is_refused(node: PlayedNode, pods: Pods) -> None:
    with pods.elsewhere("pod-b") as (other, uid):
        own = pods.run("pod-a", node.name)
        stolen = pods.holds("pod-b", uid, "gpu-0")
        node.publish(healthy=4, allocations=[stolen, pods.holds("pod-a", own, "gpu-1")])
        pods.wait_devices("pod-a", "gpu-1")
        (message,) = node.wait_events("AllocationRefused", about=node.nd_name())
        assert f"{pods.namespace}/pod-b" in message
        assert f"runs on {other}, not on {node.name}" in message
        assert pods.shown("pod-b") is None
