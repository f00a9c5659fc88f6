"""What the random situations do not have: pods that run, that may not open a device, that want memory; parts; nodes; devices."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cluster.agent_objects import now_text
from tests.cluster.api import Node, Pod
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import apply_status
from tests.integration.why.situations import Situation, ask, codes

Make = Callable[..., Situation]
# no other file's: names of Nodes and resources are made of it
_FIRST = 9000


@pytest.fixture
def make(installed: ControlPlane, namespace: str) -> Iterator[Make]:
    """A situation whose Nodes show their devices; without a pod yet."""
    numbers = iter(range(_FIRST, _FIRST + 99))
    with ExitStack() as undo:

        def make_one(*, is_bound: bool = False, played_by: str = "") -> Situation:
            at = Situation(installed, namespace, next(numbers), is_bound=is_bound)
            at.make_nodes(played_by)
            undo.callback(at.remove)
            at.make_agents()
            at.wait_shown()
            return at

        yield make_one


def explained(at: Situation, name: str = "") -> dict[str, Any]:
    return ask(at.cluster.admin_kubeconfig, "pod", name or at.name, "--namespace", at.namespace)


def wait_codes(at: Situation, *wanted: str, name: str = "") -> dict[str, Any]:
    """The answer, once it has these codes."""
    found: list[dict[str, Any]] = []

    def is_so() -> bool:
        found[:] = [explained(at, name)]
        return codes(found[0]) == list(wanted)

    try:
        wait_until(is_so, f"causes are {wanted}")
    except TimeoutError:
        assert codes(found[0]) == list(wanted)
    return found[0]


@pytest.mark.usefixtures("operator")
def test_a_device_that_its_user_may_not_open(make: Make) -> None:
    at = make(is_bound=True)
    ended = {"exitCode": 1, "reason": "Error", "message": "starting\nopen /dev/ttyUSB0: Permission denied\n"}
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    found = {"name": "main", "image": "none", "imageID": "", "ready": False, "restartCount": 1, "state": state}
    at.status = {"containerStatuses": [{**found, "lastState": {"terminated": ended}}]}
    at.make_pod()
    at.agents[at.nodes[0]].allocations.append(at.held("gpu-0", "gpu-1"))
    at.publish()
    answer = wait_codes(at, "DeviceFileRefused")
    assert "open /dev/ttyUSB0: Permission denied" in answer["causes"][0]["message"]
    assert "supplementalGroups" in answer["causes"][0]["help"]["text"]


@pytest.mark.usefixtures("operator")
def test_parts_that_are_free_on_two_devices(make: Make) -> None:
    """The sum would suffice, so the scheduler binds it, and its agent waits; before that `why` says so of each node."""
    at = make()
    devices = [
        {"id": f"GPU-{n}", "health": "Healthy", "parts": {"total": 8, "healthy": 8, "allocated": 5, "available": 3}}
        for n in range(2)
    ]
    rules = {
        "placement": "SameParent",
        "choice": "BinPack",
        "containers": "Any",
        "advertise": "Largest",
        "largestAvailable": 3,
    }
    held = [{"parent": f"GPU-{n}", "parts": 5, "numbers": "0-4"} for n in range(2)]
    pod = {"namespace": at.namespace, "name": "other", "podUID": "uid-other", "container": "main", "parts": held}
    for node, agent in at.agents.items():
        counts = {"total": 16, "healthy": 16, "allocated": 10, "available": 6}
        status = agent.status() | counts | {"devices": devices, "parts": rules, "allocations": [pod]}
        apply_status(at.client, at.node_device(node), status)
    at.shown = 13
    at.wait_shown()
    at.requests[at.resource] = "4"
    at.spec["schedulingGates"] = [{"name": "example.com/hold"}]
    at.make_pod()
    found = wait_codes(at, "SchedulingGated", "TooFewOnOneDevice")
    assert found["causes"][1]["where"][0]["detail"] == "6 are free together, at most 3 of 8 on one, GPU-0"


@pytest.mark.usefixtures("operator")
def test_nothing_about_devices_stops_a_pod_without_room_for_its_memory(make: Make) -> None:
    at = make()
    at.requests["memory"] = "999Gi"
    at.make_pod()
    wait_until(lambda: "Insufficient memory" in explained(at)["words"]["message"], "the scheduler has its reason")
    found = explained(at)
    assert codes(found) == []
    assert found["isStopped"]


@pytest.mark.usefixtures("operator")
def test_a_pod_that_runs_with_its_devices(make: Make) -> None:
    at = make()
    at.make_pod()

    def is_running() -> bool:
        found: Any = at.client.get(Pod, at.name, namespace=at.namespace)
        return bool(found.status.phase == "Running")

    wait_until(is_running, "the pod runs")
    pod: Any = at.client.get(Pod, at.name, namespace=at.namespace)
    at.agents[pod.spec.nodeName].allocations.append(at.held("gpu-0", "gpu-1"))
    at.publish()
    wait_until(lambda: "gpu-0,gpu-1" in explained(at)["state"], "its devices are shown")
    assert not explained(at)["isStopped"]


@pytest.mark.usefixtures("operator")
def test_a_node_and_a_device(make: Make) -> None:
    at = make()
    node = at.nodes[0]
    at.agents[node].broken = "Xid79"
    at.publish()
    admin = at.cluster.admin_kubeconfig

    def is_so() -> bool:
        return codes(ask(admin, "node", node)) == ["DevicesBroken"]

    wait_until(is_so, "the node's devices are broken")
    assert codes(ask(admin, "device", node, "gpu-3")) == ["DevicesBroken"]
    assert codes(ask(admin, "node", at.nodes[1])) == []


@pytest.mark.usefixtures("operator")
def test_nodes_whose_kubelet_is_not_ready(make: Make) -> None:
    """As their kubelet reports; the control plane taints the nodes then. A scheduler that has not seen it yet binds the pod."""
    at = make(played_by="nobody")
    now = now_text()
    ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network"}
    for node in at.nodes:
        status = {"conditions": [{**ready, "lastHeartbeatTime": now, "lastTransitionTime": now}]}
        at.client.patch(Node.Status, node, {"status": status}, field_manager="kubelet")
    for node in at.nodes:
        wait_until(lambda node=node: bool(_taints(at, node)), f"{node} is tainted")  # type: ignore[misc]
    at.make_pod()
    found = wait_codes(at, "NodeNotReady")
    assert found["causes"][0]["where"][0]["detail"] in ("no network", "node.kubernetes.io/not-ready:NoSchedule")


def _taints(at: Situation, node: str) -> list[Any]:
    found: Any = at.client.get(Node, node)
    return found.spec.taints or []
