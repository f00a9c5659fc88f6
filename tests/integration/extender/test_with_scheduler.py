"""A real kube-scheduler that asks the extender: whom it preempts for parts, and when it tries a pod again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from nodedevice_api import assigned_parts, names
from nodedevice_api.nodedevice import AllocationStatus, DeviceStatus, HeldParts, PartCounts, PartRulesStatus

from tests.cluster import agent_objects
from tests.cluster.api import Event, Node, Object, Pod, PriorityClass
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.second_scheduler import Extender, second_scheduler
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status
from tests.integration.extender.extender_process import MEMORY, ExtenderProcess, GpuNode

_SCHEDULER = "with-extender"
_HIGH = "preempts"


@pytest.fixture(scope="module")
def scheduler(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExtenderProcess]:
    folder = tmp_path_factory.mktemp("scheduler")
    with ExtenderProcess(installed, folder / "extender").active() as extender:
        asked = Extender(f"http://{extender.verbs}", [MEMORY])
        program = second_scheduler(installed.folder / "kube-scheduler.kubeconfig", folder, _SCHEDULER, asked)
        program.start()
        installed.client.create(PriorityClass(metadata=Object(name=_HIGH), value=1000))
        yield extender
        program.kill()
        installed.client.delete(PriorityClass, _HIGH)


class Gpus(GpuNode):
    """A node with two GPUs of 8 parts, whose agent is played: it lists the pods that hold parts there."""

    def publish_pods(self) -> None:
        """Publish what the pods there hold at this moment."""
        bound: Any = self.client.list(Pod, namespace="*", fields={"spec.nodeName": self.name})
        pods = list(bound)
        held = {pod.metadata.uid: _assigned(pod) for pod in pods}
        free = {gpu: 8 - sum(parts.get(gpu, 0) for parts in held.values()) for gpu in ("GPU-0", "GPU-1")}
        devices = [DeviceStatus(id=gpu, health="Healthy", parts=PartCounts(8, 8, 8 - n, n)) for gpu, n in free.items()]
        allocations = [
            AllocationStatus(
                pod_uid=pod.metadata.uid,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                container="main",
                device_ids=[pod.metadata.uid],
                parts=[HeldParts(gpu, n, f"0-{n - 1}") for gpu, n in held[pod.metadata.uid].items()],
            )
            for pod in pods
            if held[pod.metadata.uid]
        ]
        counts: dict[str, Any] = {"total": 16, "healthy": 16, "available": sum(free.values())}
        parts = PartRulesStatus(
            placement="SameParent",
            choice="BinPack",
            containers="Any",
            advertise="Sum",
            largest_available=max(free.values()),
        )
        status = agent_objects.status(devices, allocations, parts=parts, delivery="nri", **counts)
        apply_status(self.client, self.nd_name(MEMORY), status)


@contextmanager
def _gpus(cluster: ControlPlane) -> Iterator[Gpus]:
    with Gpus(cluster) as node:
        node.settle_parts(8, 8)
        patch = {"status": {"capacity": {MEMORY: "16"}, "allocatable": {MEMORY: "16"}}}
        cluster.client.patch(Node.Status, node.name, patch)
        yield node


@pytest.fixture
def gpus(installed: ControlPlane) -> Iterator[Gpus]:
    with _gpus(installed) as node:
        yield node


def _start(cluster: ControlPlane, gpus: Gpus, namespace: str, units: int, *pods: str, priority: str = "") -> None:
    for name in pods:
        _create(cluster, gpus, namespace, units, name, priority)
        if not priority:
            _wait_bound(cluster, gpus, namespace, name)


def _create(
    cluster: ControlPlane, gpus: Gpus, namespace: str, units: int, name: str, priority: str = "", **more: Any
) -> None:
    spec: dict[str, Any] = {
        "schedulerName": _SCHEDULER,
        "terminationGracePeriodSeconds": 0,
        "nodeSelector": {"kubernetes.io/hostname": gpus.name},
        "containers": [{"name": "main", "image": "none", "resources": {"limits": {MEMORY: str(units)}}}],
    }
    spec |= ({"priorityClassName": priority} if priority else {}) | more
    pod: Any = Pod.from_dict({"metadata": {"name": name, "namespace": namespace}, "spec": spec})
    cluster.client.create(pod)


def _requests(extender: ExtenderProcess) -> dict[str, float]:
    """The number of requests by verb."""
    counts = "nodedevice_extender_request_seconds_count"
    return {verb: extender.metric(f'{counts}{{verb="{verb}"}}') for verb in ("filter", "prioritize", "bind")}


def _wait_bound(cluster: ControlPlane, gpus: Gpus, namespace: str, name: str) -> None:
    def is_bound() -> bool:
        gpus.publish_pods()
        return bool(_on(cluster, namespace, name))

    wait_until(is_bound, f"{name} is bound")
    gpus.publish_pods()


def _assigned(pod: Any) -> dict[str, int]:
    """By GPU, the parts that the pod is assigned."""
    text = (pod.metadata.annotations or {}).get(names.ASSIGNED_PARTS_ANNOTATION)
    return dict(assigned_parts.decode(text, pod.metadata.uid)[MEMORY]["main"]) if text else {}


def _on(cluster: ControlPlane, namespace: str, name: str) -> list[str]:
    """The GPUs that a pod is assigned."""
    return list(_assigned(cluster.client.get(Pod, name, namespace=namespace)))


def _messages(cluster: ControlPlane, namespace: str, name: str) -> list[str]:
    events = cluster.client.list(Event, namespace=namespace)
    return [e.message or "" for e in events if e.involvedObject.name == name and e.reason == "FailedScheduling"]


def _left(cluster: ControlPlane, namespace: str, *pods: str) -> set[str]:
    found = {each.metadata.name for each in cluster.client.list(Pod, namespace=namespace) if each.metadata}
    return {name for name in pods if name in found}


def test_a_plain_pod_takes_a_filter_and_a_bind_and_one_with_a_preference_is_scored(
    installed: ControlPlane, scheduler: ExtenderProcess, gpus: Gpus, namespace: str
) -> None:
    term = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    wish = {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}

    def bind(name: str, spec: dict[str, Any]) -> dict[str, float]:
        """How many requests it takes."""
        before = _requests(scheduler)
        _create(installed, gpus, namespace, 1, name, **spec)
        _wait_bound(installed, gpus, namespace, name)
        wait_until(lambda: _requests(scheduler)["bind"] > before["bind"], "its bind is counted")
        return {verb: number - before[verb] for verb, number in _requests(scheduler).items()}

    with _gpus(installed) as other:
        anywhere: dict[str, Any] = {"nodeSelector": {}}
        # both nodes are known when the second pod comes
        bind("first", {"nodeSelector": {"kubernetes.io/hostname": other.name}})
        assert bind("plain", anywhere) == {"filter": 1, "prioritize": 0, "bind": 1}
        assert bind("choosy", anywhere | wish) == {"filter": 1, "prioritize": 1, "bind": 1}


@pytest.mark.usefixtures("scheduler")
def test_pods_of_one_gpu_end_where_those_of_two_would_be_no_help(
    installed: ControlPlane, gpus: Gpus, namespace: str
) -> None:
    low = ["a", "b", "c", "d"]
    # 2 parts are free on each GPU
    _start(installed, gpus, namespace, 3, *low)
    on = {name: _on(installed, namespace, name) for name in low}
    _start(installed, gpus, namespace, 7, "high", priority=_HIGH)
    _wait_bound(installed, gpus, namespace, "high")
    (gpu,) = _on(installed, namespace, "high")
    assert _left(installed, namespace, *low) == {name for name in low if on[name] != [gpu]}


@pytest.mark.usefixtures("scheduler")
def test_where_the_sum_suffices_nothing_is_preempted(installed: ControlPlane, gpus: Gpus, namespace: str) -> None:
    _start(installed, gpus, namespace, 5, "a", "b")
    _start(installed, gpus, namespace, 4, "high", priority=_HIGH)
    wait_until(lambda: bool(_messages(installed, namespace, "high")), "why it waits is in an Event")
    assert f"no device has 4 of {MEMORY} free; the most is 3" in _messages(installed, namespace, "high")[0]
    assert _left(installed, namespace, "a", "b") == {"a", "b"}
    installed.client.delete(Pod, "a", namespace=namespace, grace_period=0)
    _wait_bound(installed, gpus, namespace, "high")


@pytest.mark.usefixtures("scheduler")
def test_a_pod_is_tried_again_by_itself_when_one_that_ends_leaves_room(
    installed: ControlPlane, gpus: Gpus, namespace: str
) -> None:
    _start(installed, gpus, namespace, 5, "a", "b")
    installed.client.delete(Pod, "a", namespace=namespace, grace_period=0)
    # its agent has not shown it yet
    _create(installed, gpus, namespace, 4, "next")
    expected = f"as pods that leave node {gpus.name} make room"
    wait_until(lambda: any(expected in each for each in _messages(installed, namespace, "next")), "it is said so", 60)
    gpus.publish_pods()
    wait_until(lambda: bool(_on(installed, namespace, "next")), "next is bound")
