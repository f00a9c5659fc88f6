"""The operator on a real API server: which Events pods and NodeDevices get as devices break, recover and run short."""

import pytest

from tests.cluster.api import Event
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import GPU, NIC, PlayedNode


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


def test_a_pod_without_devices_gets_an_event_each_time(installed: ControlPlane, node: PlayedNode, pods: Pods) -> None:
    uid, early = pods.run("pod-a", node.name), pods.run("pod-b", node.name)
    well, without = pods.holds("pod-a", uid, "gpu-0"), pods.holds("pod-a", uid, "gpu-0", notInjected=True)
    node.publish(healthy=4, allocations=[well])
    node.publish(healthy=4, allocations=[without])
    (message,) = node.wait_events("DevicesNotInjected", about="pod-a", namespace=pods.namespace)
    assert message.startswith(f"container main runs without the {GPU} that it requested on {node.name}; delete the pod")
    node.publish(healthy=3, broken=1, allocations=[without])
    node.publish(healthy=4, allocations=[well])
    node.publish(healthy=4, allocations=[without])
    wait_until(lambda: times_reported(installed, pods, "pod-a") == 2, "it is reported at the second transition")
    # a pod that ran before its resource was known here, and one that is not of this node
    with pods.elsewhere("pod-c") as (_, other):
        false = pods.holds("pod-c", other, "gpu-1", notInjected=True)
        node.make(NIC)
        waits = {**false, "name": "pod-b", "podUID": early, "reason": "NotEnoughDevices", "message": ""}
        del waits["deviceIDs"]
        node.publish(NIC, healthy=1, waiting=[waits])
        node.publish(healthy=4, allocations=[without, false])
        (message,) = node.wait_events("DevicesNotInjected", about="pod-b", namespace=pods.namespace)
        assert f"runs without the {NIC} that" in message
        # Events are posted in order: this one comes after all Events about the pods
        node.publish(healthy=4, allocations=[without, false], state="Stopped")
        node.wait_events("EndpointStopped", about=node.nd_name())
        assert node.events("DevicesNotInjected", "pod-c", pods.namespace) == []
        assert times_reported(installed, pods, "pod-a") == 2


def times_reported(control_plane: ControlPlane, pods: Pods, name: str) -> int:
    """How often it was reported for that pod; the same again within some minutes is one Event that counts."""
    found = control_plane.client.list(Event, namespace=pods.namespace)
    matching = [e for e in found if (e.reason, e.involvedObject.name) == ("DevicesNotInjected", name)]
    return sum(event.count or 0 for event in matching)
