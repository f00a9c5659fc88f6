"""The operator on a real API server: PodDevices as pods come and go, and what pods and NodeDevices are told."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Event, Pod
from lightkube.types import PatchType

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.custom_resources import PodDevice
from tests.integration.operator_process import (
    GPU,
    NIC,
    OperatorProcess,
    PlayedNode,
    delete,
    now_text,
    operator_writes,
    pod_device,
)


@pytest.fixture(scope="module")
def operator(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    running = OperatorProcess(installed, tmp_path_factory.mktemp("operator"))
    running.start()
    yield running
    running.close()


@pytest.fixture
def node(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayedNode]:
    """A Node with 4 GPUs, shown."""
    made = PlayedNode(installed)
    made.make()
    made.renew_lease()
    made.publish(healthy=4)
    made.wait_shown(4)
    yield made
    made.remove()


class Pods:
    """Pods of one namespace, and the PodDevices beside them."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._control_plane = control_plane
        self.client = control_plane.client
        self.namespace = namespace

    def run(self, name: str, node: str | None) -> str:
        """Make a pod that is bound to the node already, or to none and never will be; its uid."""
        scheduler = None if node else "nobody"
        spec = PodSpec(nodeName=node, schedulerName=scheduler, containers=[Container(name="main", image="none")])
        made = self.client.create(Pod(metadata=ObjectMeta(name=name, namespace=self.namespace), spec=spec))
        assert made.metadata is not None
        return str(made.metadata.uid)

    def run_many(self, wanted: list[str], node: str) -> dict[str, str]:
        """Make these pods, bound to the node already; their uids by name."""
        spec = {"nodeName": node, "containers": [{"name": "main", "image": "none"}]}
        made = [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in wanted]
        body = json.dumps({"apiVersion": "v1", "kind": "List", "items": made})
        self._control_plane.kubectl("create", "-n", self.namespace, "-f", "-", stdin=body)
        uids = "jsonpath={range .items[*]}{.metadata.name} {.metadata.uid}{'\\n'}{end}"
        lines = self._control_plane.kubectl("get", "pods", "-n", self.namespace, "-o", uids).splitlines()
        return dict(line.split() for line in lines)

    def remove(self, name: str) -> None:
        """Delete a pod and wait until the API has forgotten it."""
        delete(self.client, Pod, name, self.namespace)
        pods = self.client
        wait_until(
            lambda: name not in {p.metadata.name for p in pods.list(Pod, namespace=self.namespace) if p.metadata},
            f"pod {name} is gone",
        )

    def holds(self, name: str, uid: str, *device_ids: str, container: str = "main", **more: Any) -> dict[str, Any]:
        """An allocation, as an agent publishes it."""
        pod = {"namespace": self.namespace, "name": name, "podUID": uid}
        return {**pod, "container": container, "deviceIDs": list(device_ids), **more}

    def shown(self, name: str) -> dict[str, Any] | None:
        """Status of the PodDevice; None without one."""
        found = pod_device(self.client, self.namespace, name)
        return None if found is None else dict(found.status or {})

    def wait(
        self, name: str, is_so: Callable[[dict[str, Any] | None], bool], what: str, timeout_seconds: float = 20
    ) -> None:
        """Wait until the status of the PodDevice is so."""
        wait_until(lambda: is_so(self.shown(name)), f"PodDevice {name} {what}", timeout_seconds)

    def wait_devices(self, name: str, devices: str) -> Any:
        """Wait until the PodDevice shows those devices; the object."""
        self.wait(name, lambda status: status is not None and status.get("devices") == devices, f"shows {devices}")
        return pod_device(self.client, self.namespace, name)

    def wait_gone(self, name: str) -> None:
        """Wait until there is no such PodDevice; the garbage collector looks for new kinds every 30 s only."""
        self.wait(name, lambda status: status is None, "is gone", 90)


@pytest.fixture
def pods(installed: ControlPlane, namespace: str) -> Pods:
    return Pods(installed, namespace)


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
    assert len(node.events("DevicesAllocated", "pod-a", pods.namespace)) == 1


def test_a_pod_that_is_deleted_takes_its_poddevice_along(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    pods.remove("pod-a")
    pods.wait_gone("pod-a")
    # the agent has not noticed yet: nothing is made for a pod that is gone, and nobody is accused
    node.publish(healthy=3, broken=1, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    node.wait_events("DeviceUnhealthy", about=node.nd_name())
    node.wait_shown(4 - 1)
    assert pods.shown("pod-a") is None
    assert node.events("AllocationRefused", node.nd_name()) == []


def test_a_recreated_pod_gets_a_poddevice_of_its_own(node: PlayedNode, pods: Pods) -> None:
    old = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", old, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    pods.remove("pod-a")
    new = pods.run("pod-a", node.name)
    both = [pods.holds("pod-a", old, "gpu-0", releasing=True), pods.holds("pod-a", new, "gpu-1")]
    node.publish(healthy=4, allocations=both)
    made = pods.wait_devices("pod-a", "gpu-1")
    assert made.spec["podUID"] == new


def test_two_resources_are_one_poddevice_and_each_is_told(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    node.make(NIC)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-1")])
    node.publish(NIC, healthy=1, broken=1, allocations=[pods.holds("pod-a", uid, "gpu-1", container="side")])
    pods.wait("pod-a", lambda s: s is not None and s["resources"] == f"{GPU}=1,{NIC}=1", "shows both")
    status = pods.shown("pod-a")
    assert status is not None
    assert [c["name"] for c in status["containers"]] == ["main", "side"]
    assert status["health"] == "gpu-1 Unhealthy"
    told = node.wait_events("DevicesAllocated", 2, about="pod-a", namespace=pods.namespace)
    assert sorted(told) == [f"{GPU}: gpu-1 on {node.name}", f"{NIC}: gpu-1 on {node.name}"]


def test_an_allocation_of_a_pod_on_another_node_is_refused(
    installed: ControlPlane, node: PlayedNode, pods: Pods
) -> None:
    other = PlayedNode(installed)
    try:
        uid = pods.run("pod-b", other.name)
        own = pods.run("pod-a", node.name)
        stolen = pods.holds("pod-b", uid, "gpu-0")
        node.publish(healthy=4, allocations=[stolen, pods.holds("pod-a", own, "gpu-1")])
        pods.wait_devices("pod-a", "gpu-1")
        (message,) = node.wait_events("AllocationRefused", about=node.nd_name())
        assert f"{pods.namespace}/pod-b" in message
        assert f"runs on {other.name}, not on {node.name}" in message
        assert pods.shown("pod-b") is None
    finally:
        # nobody ends the pods of a node that is gone, until the controller manager notices
        pods.remove("pod-b")
        other.remove()


def counts(node: PlayedNode, reason: str) -> list[int | None]:
    """How often each Event with that reason on the NodeDevice has happened."""
    found = node.client.list(Event, namespace="default")
    return [e.count for e in found if (e.reason, e.involvedObject.name) == (reason, node.nd_name())]


def test_what_is_refused_is_told_once_however_often_it_is_said(
    operator: OperatorProcess, node: PlayedNode, pods: Pods
) -> None:
    loose = pods.holds("pod-z", pods.run("pod-z", None), "gpu-0")
    for broken in (0, 1, 0, 1):
        node.publish(healthy=4 - broken, broken=broken, allocations=[loose])
        node.wait_shown(4 - broken)
    (message,) = node.wait_events("AllocationRefused", about=node.nd_name())
    assert "pod-z" in message
    assert "is not bound to a node" in message
    # Events are posted in order
    node.publish(healthy=3, broken=1, allocations=[loose], state="Stopped")
    node.wait_events("EndpointStopped", about=node.nd_name())
    assert counts(node, "AllocationRefused") == [1]
    pod = f"{pods.namespace}/pod-z"
    logged = [line for line in operator.lines() if line["event"] == "allocation refused" and line["pod"] == pod]
    assert len(logged) == 1


def test_what_came_while_no_operator_ran_is_told_once(operator: OperatorProcess, node: PlayedNode, pods: Pods) -> None:
    operator.stop()
    loose = pods.holds("pod-z", pods.run("pod-z", None), "gpu-0")
    contrary: dict[str, Any] = {"healthy": 4, "allocations": [loose], "allocated": 0, "available": 4}
    node.publish(**contrary)
    for state in ("Stopped", "Running"):
        operator.start()
        wait_until(lambda: operator.leads, "it leads")
        # told after whatever is said of what stands
        node.publish(**contrary, state=state)
        node.wait_events(f"Endpoint{state}", about=node.nd_name())
        assert (counts(node, "AllocationRefused"), counts(node, "StatusContradictsItself")) == ([1], [1])
        operator.stop()
    operator.start()


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param({"status": {"devices": "gpu-9"}}, id="status"),
        pytest.param({"status": None}, id="no status"),
        pytest.param({"metadata": {"ownerReferences": None}}, id="no owner"),
    ],
)
def test_a_poddevice_that_somebody_edits_is_put_right(node: PlayedNode, pods: Pods, edit: dict[str, Any]) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    before = pods.wait_devices("pod-a", "gpu-0")
    merge = PatchType.MERGE
    pods.client.patch(PodDevice, "pod-a", edit, namespace=pods.namespace, patch_type=merge, field_manager="admin")

    def is_right() -> bool:
        now = pod_device(pods.client, pods.namespace, "pod-a")
        assert now is not None
        return bool(now.status == before.status and now.metadata.ownerReferences)

    wait_until(is_right, "PodDevice is right again", 20)


def test_a_poddevice_that_somebody_deletes_is_made_again(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    node.publish(healthy=4, allocations=[pods.holds("pod-a", uid, "gpu-0")])
    pods.wait_devices("pod-a", "gpu-0")
    node.wait_events("DevicesAllocated", about="pod-a", namespace=pods.namespace)
    pods.client.delete(PodDevice, "pod-a", namespace=pods.namespace)
    pods.wait_devices("pod-a", "gpu-0")
    assert len(node.events("DevicesAllocated", "pod-a", pods.namespace)) == 1


def test_a_poddevice_that_nothing_calls_for_is_deleted(node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    spec = {"nodeName": node.name, "podUID": uid}
    body = {"metadata": {"name": "pod-a", "namespace": pods.namespace}, "spec": spec}
    pods.client.create(PodDevice.from_dict(body))
    pods.wait_gone("pod-a")


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
    events = [e for e in operator_writes(installed)[written:] if e["requestURI"].partition("?")[0].endswith("/events")]
    assert len(events) == 1
    pods.wait_devices("pod-a", "gpu-0")


def test_waiting_pods_are_told_once_per_reason(node: PlayedNode, pods: Pods, installed: ControlPlane) -> None:
    uid = pods.run("pod-a", node.name)

    def waits(reason: str, message: str) -> dict[str, Any]:
        pod = {"namespace": pods.namespace, "name": "pod-a", "podUID": uid}
        return {**pod, "container": "main", "reason": reason, "message": message}

    node.publish(healthy=4, waiting=[waits("NotEnoughDevices", "0 of 2 are free")])
    (first,) = node.wait_events("DevicesWaiting", about="pod-a", namespace=pods.namespace)
    assert first == f"container main waits for {GPU} on {node.name}: NotEnoughDevices (0 of 2 are free)"
    node.publish(healthy=4, waiting=[waits("NotEnoughDevices", "1 of 2 are free")])
    node.publish(healthy=4, waiting=[waits("AllocateFailed", "the device plugin refused")])
    told = node.wait_events("DevicesWaiting", 2, about="pod-a", namespace=pods.namespace)
    assert len(told) == 2
    # of a pod on another node nobody hears
    stranger = PlayedNode(installed)
    try:
        pods.run("pod-b", stranger.name)
        false = {**waits("NotEnoughDevices", ""), "name": "pod-b"}
        node.publish(healthy=4, waiting=[false])
        node.publish(healthy=3, broken=1)
        node.wait_events("DeviceUnhealthy", about=node.nd_name())
        assert node.events("DevicesWaiting", "pod-b", pods.namespace) == []
    finally:
        pods.remove("pod-b")
        stranger.remove()


def test_devices_that_break_together_are_told_together(node: PlayedNode) -> None:
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


def test_the_pod_that_holds_a_broken_device_is_told_too(installed: ControlPlane, node: PlayedNode, pods: Pods) -> None:
    uid = pods.run("pod-a", node.name)
    held = [pods.holds("pod-a", uid, "gpu-3")]
    node.publish(healthy=4, allocations=held)
    pods.wait_devices("pod-a", "gpu-3")
    node.publish(healthy=3, broken=1, allocations=held)
    told = node.wait_events("DeviceUnhealthy", about="pod-a", namespace=pods.namespace)
    assert told == [
        f"1 device (gpu-3) of {GPU} on {node.name} unhealthy (ReportedUnhealthy); held by this pod until it ends"
    ]
    node.publish(healthy=4, allocations=held)
    told = node.wait_events("DeviceRecovered", about="pod-a", namespace=pods.namespace)
    assert told == [f"1 device (gpu-3) of {GPU} on {node.name} healthy again"]
    # of a pod on another node nobody hears, whatever an agent says of it
    stranger = PlayedNode(installed)
    try:
        false = [*held, pods.holds("pod-b", pods.run("pod-b", stranger.name), "gpu-2")]
        node.publish(healthy=4, allocations=false)
        node.publish(healthy=2, broken=2, allocations=false)
        node.wait_events("DeviceUnhealthy", 2, about=node.nd_name())
        node.publish(healthy=4, allocations=false)
        node.wait_events("DeviceRecovered", 2, about=node.nd_name())
        assert node.events("DeviceUnhealthy", "pod-b", pods.namespace) == []
    finally:
        pods.remove("pod-b")
        stranger.remove()


def test_a_pod_that_runs_without_its_devices_is_told_each_time(
    installed: ControlPlane, node: PlayedNode, pods: Pods
) -> None:
    uid, early = pods.run("pod-a", node.name), pods.run("pod-b", node.name)
    well, without = pods.holds("pod-a", uid, "gpu-0"), pods.holds("pod-a", uid, "gpu-0", runsWithout=True)
    node.publish(healthy=4, allocations=[well])
    node.publish(healthy=4, allocations=[without])
    (message,) = node.wait_events("RunsWithoutDevices", about="pod-a", namespace=pods.namespace)
    assert message.startswith(f"container main runs without the {GPU} that it asked for on {node.name}; delete the pod")
    node.publish(healthy=3, broken=1, allocations=[without])
    node.publish(healthy=4, allocations=[well])
    node.publish(healthy=4, allocations=[without])
    wait_until(lambda: times_told(installed, pods, "pod-a") == 2, "it is told at the second transition")
    # a pod that ran before its resource was known here, and one that is not of this node
    stranger = PlayedNode(installed)
    try:
        false = pods.holds("pod-c", pods.run("pod-c", stranger.name), "gpu-1", runsWithout=True)
        node.make(NIC)
        waits = {**false, "name": "pod-b", "podUID": early, "reason": "NotEnoughDevices", "message": ""}
        del waits["deviceIDs"]
        node.publish(NIC, healthy=1, waiting=[waits])
        node.publish(healthy=4, allocations=[without, false])
        (message,) = node.wait_events("RunsWithoutDevices", about="pod-b", namespace=pods.namespace)
        assert f"runs without the {NIC} that" in message
        # Events are posted in order: this one comes after whatever is told of the pods
        node.publish(healthy=4, allocations=[without, false], state="Stopped")
        node.wait_events("EndpointStopped", about=node.nd_name())
        assert node.events("RunsWithoutDevices", "pod-c", pods.namespace) == []
        assert times_told(installed, pods, "pod-a") == 2
    finally:
        pods.remove("pod-c")
        stranger.remove()


def times_told(control_plane: ControlPlane, pods: Pods, name: str) -> int:
    """How often it was told of that pod; the same again within some minutes is one Event that counts."""
    found = control_plane.client.list(Event, namespace=pods.namespace)
    told = [e for e in found if (e.reason, e.involvedObject.name) == ("RunsWithoutDevices", name)]
    return sum(event.count or 0 for event in told)


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


def test_each_of_many_pods_is_written_once_and_once_for_its_change(
    installed: ControlPlane, node: PlayedNode, pods: Pods
) -> None:
    numbers = [f"{number:03}" for number in range(_MANY)]
    wanted = [f"pod-{number}" for number in numbers]
    uids = pods.run_many(wanted, node.name)
    held = [pods.holds(f"pod-{n}", uids[f"pod-{n}"], f"gpu-{n}") for n in numbers]
    since = now_text()
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
        for event in operator_writes(installed, path, since)
    )
    assert written == {("patch", name): 1 for name in wanted[:-1]} | {("patch", wanted[-1]): 2}
    # one request for all of them takes longer than a client waits, where the machine is slow
    installed.kubectl("delete", "pods", "--all", "-n", pods.namespace, "--force", "--wait=false")
