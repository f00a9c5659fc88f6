"""The operator on a real API server: what it refuses to believe of an agent, and that it says so once."""

from typing import Any

from tests.cluster.api import Event
from tests.cluster.waiting import wait_until
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import OperatorProcess, PlayedNode


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


def test_what_came_while_none_ran_is_reported_once(operator: OperatorProcess, node: PlayedNode, pods: Pods) -> None:
    operator.stop()
    loose = pods.holds("pod-z", pods.run("pod-z", None), "gpu-0")
    contrary: dict[str, Any] = {"healthy": 4, "allocations": [loose], "allocated": 0, "available": 4}
    node.publish(**contrary)
    for state in ("Stopped", "Running"):
        operator.start()
        wait_until(lambda: operator.leads, "it leads")
        node.wait_events("AllocationRefused", about=node.nd_name())
        node.wait_events("StatusContradictsItself", about=node.nd_name())
        # posted after all Events about the status before
        node.publish(**contrary, state=state)
        node.wait_events(f"Endpoint{state}", about=node.nd_name())
        assert (counts(node, "AllocationRefused"), counts(node, "StatusContradictsItself")) == ([1], [1])
        operator.stop()
    operator.start()


def counts(node: PlayedNode, reason: str) -> list[int | None]:
    """How often each Event with that reason on the NodeDevice has happened."""
    found = node.client.list(Event, namespace="default")
    return [e.count for e in found if (e.reason, e.involvedObject.name) == (reason, node.nd_name())]
