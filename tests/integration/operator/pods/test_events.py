"""The operator on a real API server: which Events pods and NodeDevices get as devices break, recover and run short."""

from typing import Any

import pytest

from tests.cluster.api import Event
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import GPU, NIC, PlayedNode


def test_waiting_pods_get_one_event_per_reason(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)

    def waits(reason: str, message: str) -> dict[str, Any]:
        pod = {"namespace": pods.namespace, "name": "pod-a", "podUID": uid}
        return {**pod, "container": "main", "reason": reason, "message": message}

    node.publish(healthy=4, waiting=[waits("NotEnoughDevices", "0 of 2 are free")])
    (first,) = node.wait_events("DevicesWaiting", about="pod-a", namespace=pods.namespace)
    assert first == f"container main is pending without {GPU} on {node.name}: NotEnoughDevices (0 of 2 are free)"
    node.publish(healthy=4, waiting=[waits("NotEnoughDevices", "1 of 2 are free")])
    node.publish(healthy=4, waiting=[waits("AllocateFailed", "the device plugin refused")])
    matching = node.wait_events("DevicesWaiting", 2, about="pod-a", namespace=pods.namespace)
    assert len(matching) == 2
    # of a pod on another node nobody hears
    with pods.elsewhere("pod-b"):
        false = {**waits("NotEnoughDevices", ""), "name": "pod-b"}
        node.publish(healthy=4, waiting=[false])
        node.publish(healthy=3, broken=1)
        node.wait_events("DeviceUnhealthy", about=node.nd_name())
        assert node.events("DevicesWaiting", "pod-b", pods.namespace) == []


def test_devices_that_break_together_are_one_event(node: PlayedNode) -> None:
    node.publish(healthy=1, broken=3)
    (message,) = node.wait_events("DeviceUnhealthy", about=node.nd_name())
    assert message == f"3 devices (gpu-1, gpu-2, gpu-3) of {GPU} on {node.name} unhealthy (ReportedUnhealthy)"
    node.publish(healthy=3, broken=1)
    (message,) = node.wait_events("DeviceRecovered", about=node.nd_name())
    assert message == f"2 devices (gpu-1, gpu-2) of {GPU} on {node.name} healthy again"
    node.publish(healthy=3, broken=1, state="Stopped")
    node.wait_events("EndpointStopped", about=node.nd_name())
    node.publish(healthy=3, broken=1)
    node.wait_events("EndpointRunning", about=node.nd_name())


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
    # of a pod on another node nobody hears, whatever an agent says of it
    with pods.elsewhere("pod-b") as (_, other):
        false = [*held, pods.holds("pod-b", other, "gpu-2")]
        node.publish(healthy=4, allocations=false)
        node.publish(healthy=2, broken=2, allocations=false)
        node.wait_events("DeviceUnhealthy", 2, about=node.nd_name())
        node.publish(healthy=4, allocations=false)
        node.wait_events("DeviceRecovered", 2, about=node.nd_name())
        assert node.events("DeviceUnhealthy", "pod-b", pods.namespace) == []


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
