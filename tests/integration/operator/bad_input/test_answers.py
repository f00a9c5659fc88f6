"""Answers that nobody should give the operator, and watches that are cut, end with an error or bring nonsense.

It logs that once, tries again or opens the watch again, misses nothing meanwhile, and is right afterwards.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from nodedevice_api.names import Reason

from tests.cluster.api import Node
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy, refusal
from tests.integration import operator_process
from tests.integration.crds.custom_resources import is_refused, pod_device
from tests.integration.operator_process import LogFromHere, OperatorProcess, PlayedNode
from tests.integration.policies import allow, refuse, rule

FAILED = "reconcile failed; retrying"
DENIED = refusal(403, "Forbidden", "denied request: no", [{"message": "no"}])


class TestAnswers:
    """Answers to the one write that matters most."""

    @pytest.mark.parametrize(
        ("status", "body", "headers", "count", "message"),
        [
            pytest.param(409, refusal(409, "Conflict", "again"), {}, 17, FAILED, id="409 for long"),
            pytest.param(
                429,
                b"Too many requests, please try again later.\n",
                {"Retry-After": "1", "Content-Type": "text/plain"},
                2,
                "API server is too busy; retrying after the delay it asks for",
                id="429",
            ),
            pytest.param(403, DENIED, {}, 3, FAILED, id="denied"),
            pytest.param(200, b"{}", {}, 3, FAILED, id="nothing"),
        ],
    )
    def test_to_an_apply(
        self,
        node: PlayedNode,
        proxy: FaultProxy,
        logged: LogFromHere,
        status: int,
        body: bytes,
        headers: dict[str, str],
        count: int,
        message: str,
    ) -> None:
        path = f"/nodes/{node.name}/status"
        rule = proxy.rule("PATCH", path, count, status, body, {"Content-Type": "application/json", **headers})
        node.advertise(3, broken=1)
        assert rule.given == count
        assert len(logged.lines(message)) == 1
        assert logged.lines("API server denies access; grant the rights of the chart's role") == []


def test_an_admission_policy_that_refuses_the_write(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, logged: LogFromHere
) -> None:
    with frozen(installed, node):
        node.publish(healthy=3, broken=1)
        line = logged.wait(FAILED)
        assert "this Node is frozen" in line["error"]
        assert line["node"] == node.name
        assert node.shown() == ("4", "4")
        advertised = node.wait_condition("Advertised", "False", Reason.UPDATE_REFUSED)
        assert "this Node is frozen" in advertised["message"]
        node.wait_condition("Ready", "False", Reason.UPDATE_REFUSED)
        assert operator.get("/readyz")[0] == 200
    node.wait_shown(3)
    node.wait_condition("Advertised", "True", Reason.ADVERTISED)
    node.verify_follows()
    assert len(logged.lines(FAILED)) == 1


def test_a_dead_agent_of_a_node_that_cannot_be_written(installed: ControlPlane, node: PlayedNode) -> None:
    """The Node stays as it was; what is reported of it does not."""
    pod = f"pod-{node.name}"
    with frozen(installed, node):
        node.publish(healthy=1, broken=3)
        node.wait_condition("Advertised", "False", Reason.UPDATE_REFUSED)
        # one that nothing calls for
        node.client.apply(pod_device("default", pod, nodeName=node.name), field_manager="admin")
        wait_until(lambda: operator_process.pod_device(node.client, "default", pod) is None, "it is taken away")
        node.renew_lease(seconds=1)
        node.wait_condition("AgentReady", "Unknown", Reason.LEASE_EXPIRED)
        node.wait_condition("Ready", "False", Reason.LEASE_EXPIRED)
        node.wait_events(Reason.LEASE_EXPIRED, about=node.nd_name())
        assert node.shown() == ("4", "4")
    node.renew_lease()
    node.wait_shown(1)
    node.verify_follows()


@contextmanager
def frozen(control_plane: ControlPlane, node: PlayedNode) -> Iterator[None]:
    """Have a policy refuse every change of that Node's capacity."""
    name, probe = f"refuses-{node.name}", {"status": {"capacity": {"example.com/probe": "1"}}}
    rules, unless = [rule("nodes/status", "UPDATE", node.name)], "object.status.capacity == oldObject.status.capacity"
    refuse(control_plane, name, rules, unless, "this Node is frozen", "Forbidden")
    try:
        write = partial(node.client.patch, Node.Status, node.name, probe, dry_run=True)
        wait_until(lambda: is_refused(write), "the policy is in force")
        yield
    finally:
        allow(control_plane, name)
