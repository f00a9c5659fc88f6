"""The operator on a real API server: PodDevices as pods come and go, and as somebody else edits them."""

from collections import Counter
from typing import Any

import pytest

from tests.cluster.api import PatchType, PodDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode, operator_writes, pod_device


def wait_posted(node: PlayedNode, pods: Pods, *held: dict[str, Any]) -> None:
    """Until all that was reported so far is posted, in its order: a last pod gets a device beside what is held."""
    uid = pods.run("last", node.name)
    node.publish(healthy=4, allocations=[*held, pods.holds("last", uid, "gpu-3")])
    node.wait_events("DevicesAllocated", about="last", namespace=pods.namespace)


@pytest.mark.kubelet("behaviour 68", "scenario 102", "weak spot 13")
def test_life_of_a_pod_with_devices(installed: ControlPlane, node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0", "gpu-1")])
    made = pods.wait_devices("pod-a", "gpu-0,gpu-1")
    assert made.spec == {"nodeName": node.name, "podUID": uid}
    owner = made.metadata.ownerReferences
    assert [(o.kind, o.name, o.uid, o.controller) for o in owner] == [("Pod", "pod-a", uid, None)]
    devices: list[dict[str, Any]] = [{"id": i, "health": "Healthy"} for i in ("gpu-0", "gpu-1")]
    assert made.status == {
        "resources": f"{GPU}=2",
        "devices": "gpu-0,gpu-1",
        "health": "Healthy",
        "containers": [{"name": "main", "resources": [{"resourceName": GPU, "devices": devices}]}],
    }
    assert node.wait_events("DevicesAllocated", about="pod-a", namespace=pods.namespace) == [
        f"{GPU}: gpu-0, gpu-1 on {node.name}"
    ]
    print("\n" + installed.kubectl("get", "poddevices", "--namespace", pods.namespace))

    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0", releasing=True)])
    pods.wait_gone("pod-a")
    wait_posted(node, pods)
    assert len(node.events("DevicesAllocated", "pod-a", pods.namespace)) == 1


def test_a_pod_that_is_deleted_takes_its_poddevice_along(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    pods.remove("pod-a")
    pods.wait_gone("pod-a")
    # the agent has not noticed yet: nothing is made for a pod that is gone, and nobody is accused
    held = pods.holds("pod-a", uid, "gpu-0")
    node.publish(healthy=3, broken=1, allocations=[held])
    # written after the PodDevices of the node
    node.wait_condition("Ready", "True", "SomeDevicesUnhealthy")
    wait_posted(node, pods, held)
    assert pods.shown("pod-a") is None
    assert node.events("AllocationRefused", node.nd_name()) == []


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"status": {"devices": "gpu-9"}}, id="status"),
        pytest.param({"metadata": {"ownerReferences": None}}, id="no owner"),
    ],
)
def test_an_edited_poddevice_is_restored(node: PlayedNode, pods: Pods, edit: dict[str, Any]) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    before = pods.wait_devices("pod-a", "gpu-0")
    merge = PatchType.MERGE
    pods.client.patch(PodDevice, "pod-a", edit, namespace=pods.namespace, patch_type=merge, field_manager="admin")

    def is_right() -> bool:
        now = pod_device(pods.client, pods.namespace, "pod-a")
        assert now is not None
        return bool(now.status == before.status and now.metadata.ownerReferences)

    wait_until(is_right, "PodDevice is right again")


def test_a_restart_keeps_poddevices_and_repeats_no_event(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, pods: Pods
) -> None:
    uid = pods.run("pod-a", node.name)
    gone = pods.run("pod-b", node.name)
    broken: dict[str, Any] = {"healthy": 3, "broken": 1}
    node.publish(**broken, allocations=[pods.holds("pod-a", uid, "gpu-0"), pods.holds("pod-b", gone, "gpu-1")])
    pods.wait_devices("pod-a", "gpu-0")
    pods.wait_devices("pod-b", "gpu-1")
    node.wait_events("DevicesAllocated", about="pod-b", namespace=pods.namespace)
    operator.stop()
    node.publish(**broken, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    written = len(operator_writes(installed))
    operator.start()
    pods.wait_gone("pod-b")
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    node.wait_events("DeviceRecovered", about=node.nd_name())
    assert [e for e in operator_writes(installed)[written:] if f"/{pods.namespace}/events" in e["requestURI"]] == []
    pods.wait_devices("pod-a", "gpu-0")


def test_pods_are_only_ever_read_one_by_one(installed: ControlPlane, node: PlayedNode, pods: Pods) -> None:
    # other tests try what this account may not do
    before = len(list(installed.audit_events()))
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    account = "system:serviceaccount:nodedevice-system:nodedevice-operator"
    asked = {
        event["verb"]
        for event in list(installed.audit_events())[before:]
        if event["user"]["username"] == account and event.get("objectRef", {}).get("resource") == "pods"
    }
    assert asked == {"get"}


_MANY = 300


def test_many_pods_are_each_written_once_per_change(installed: ControlPlane, node: PlayedNode, pods: Pods) -> None:
    numbers = [f"{number:03}" for number in range(_MANY)]
    wanted = [f"pod-{number}" for number in numbers]
    uids = pods.run_many(wanted, node.name)
    held = [pods.holds(f"pod-{n}", uids[f"pod-{n}"], f"gpu-{n}") for n in numbers]
    node.publish(healthy=_MANY, allocations=held)
    # by name, so this is the last
    pods.wait(wanted[-1], bool, "is there", 120)
    # the last one's breaks
    node.publish(healthy=_MANY - 1, broken=1, allocations=held)
    pods.wait(wanted[-1], lambda status: bool(status and status["health"] != "Healthy"), "shows what is broken")
    # and what concerns no pod
    node.publish(healthy=_MANY - 1, broken=1, allocations=held, state="Stopped")
    node.wait_condition("Ready", "False", "EndpointStopped")
    path = f"/namespaces/{pods.namespace}/poddevices/"
    written = Counter(
        (event["verb"], event["requestURI"].partition(path)[2].partition("?")[0])
        for event in operator_writes(installed, path)
    )
    assert written == {("patch", name): 1 for name in wanted[:-1]} | {("patch", wanted[-1]): 2}
    # one request for all of them takes longer than a client waits, where the machine is slow
    installed.kubectl("delete", "pods", "--all", "-n", pods.namespace, "--force", "--wait=false")
