"""What the random situations do not have: a pod without room for its memory, and nodes whose kubelet is not ready."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.cluster.agent_objects import now_text
from tests.cluster.api import Node
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
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
def test_nothing_about_devices_stops_a_pod_without_room_for_its_memory(make: Make) -> None:
    at = make()
    at.requests["memory"] = "999Gi"
    at.make_pod()
    wait_until(lambda: "Insufficient memory" in explained(at)["words"]["message"], "the scheduler has its reason")
    found = explained(at)
    assert codes(found) == []
    assert found["isStopped"]


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
