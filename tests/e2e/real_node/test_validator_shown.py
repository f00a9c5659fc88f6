"""Injectable says whether the runtime holds containers back while the agent is away, as the runtime itself tells it."""

from nodedevice_api.names import Condition, Reason

from hack.cluster.waiting import wait_until
from tests.e2e.real_node.node_under_test import NodeUnderTest
from tests.e2e.real_node.pods import container, pod
from tests.e2e.real_node.pods_on_node import PATIENCE_SECONDS

_ON = "[plugins.'io.containerd.nri.v1.nri'.default_validator]\nenable = true\n"


def test_whether_it_is_on_and_that_it_was_switched_off(nri_node: NodeUnderTest) -> None:
    _wait_said_after_a_container(nri_node, Reason.RUNTIME_CONNECTED, "is on")
    with nri_node.containerd_with(_ON, _ON.replace("true", "false")):
        _wait_said_after_a_container(nri_node, Reason.NO_VALIDATOR, "enable it as docs/install.md shows")
    _wait_said_after_a_container(nri_node, Reason.RUNTIME_CONNECTED, "is on")


def _wait_said_after_a_container(of: NodeUnderTest, reason: str, end: str) -> None:
    """Of a pod that asks for nothing."""
    of.run(pod("plain", [container("main")]))

    def is_said() -> bool:
        conditions = of.node_device(of.kinds["rw"].resource).get("conditions", [])
        (found,) = [c for c in conditions if c["type"] == Condition.INJECTABLE]
        return bool(found["status"] == "True" and found["reason"] == reason and found["message"].endswith(end))

    wait_until(is_said, f"Injectable: {reason}, … {end}", PATIENCE_SECONDS)
    of.delete("plain")
