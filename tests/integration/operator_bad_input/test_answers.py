"""Answers that nobody should give to what the operator writes: it says so once, tries again, and is right afterwards."""

import pytest
from lightkube import ApiError
from lightkube.resources.core_v1 import Node

from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.trouble_proxy import TroubleProxy, refusal
from tests.integration.operator_bad_input.settled_nodes import follows
from tests.integration.operator_bad_input.told import Told
from tests.integration.operator_process import OperatorProcess, PlayedNode


class TestAnswers:
    """Answers to the one write that matters most."""

    @pytest.mark.parametrize(
        ("status", "body", "headers", "count", "said"),
        [
            pytest.param(409, refusal(409, "Conflict", "the object has been modified"), {}, 1, None, id="409"),
            pytest.param(409, refusal(409, "Conflict", "again"), {}, 17, "look at node is repeated", id="409 for long"),
            pytest.param(500, refusal(500, "InternalError", "boom"), {}, 3, "look at node is repeated", id="500"),
            pytest.param(
                429,
                b"Too many requests, please try again later.\n",
                {"Retry-After": "1", "Content-Type": "text/plain"},
                2,
                "API server is too busy; coming back when it asks to",
                id="429",
            ),
            pytest.param(
                403,
                refusal(403, "Forbidden", "denied request: no", [{"message": "no"}]),
                {},
                3,
                "look at node is repeated",
                id="denied",
            ),
            pytest.param(200, b"<html>log in</html>", {}, 3, "look at node is repeated", id="something else"),
            pytest.param(200, b"{}", {}, 3, "look at node is repeated", id="nothing"),
        ],
    )
    def test_to_an_apply(
        self,
        node: PlayedNode,
        bystander: PlayedNode,
        proxy: TroubleProxy,
        told: Told,
        status: int,
        body: bytes,
        headers: dict[str, str],
        count: int,
        said: str | None,
    ) -> None:
        path = f"/nodes/{node.name}/status"
        rule = proxy.rule("PATCH", path, count, status, body, {"Content-Type": "application/json", **headers})
        node.publish(healthy=3, broken=1)
        node.wait_shown(3)
        assert rule.given == count
        if said is not None:
            assert len(told.lines(said)) == 1
        assert told.lines("API server forbids it; grant what the chart's role nodedevice-operator has") == []


def test_an_admission_policy_that_refuses_the_write(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode, bystander: PlayedNode, told: Told
) -> None:
    manifest = POLICY.replace("NAME", f"refuses-{node.name}").replace("NODE", node.name)
    installed.apply(manifest)
    try:
        wait_until(lambda: is_refused(node), "the policy is in force")
        node.publish(healthy=3, broken=1)
        line = told.wait("look at node is repeated")
        assert "this Node is frozen" in line["problem"]
        assert line["node"] == node.name
        assert node.shown() == ("4", "4")
        assert operator.get("/readyz")[0] == 200
    finally:
        for kind in ("validatingadmissionpolicybinding", "validatingadmissionpolicy"):
            installed.kubectl("delete", kind, f"refuses-{node.name}")
    node.wait_shown(3)
    follows(node)
    assert len(told.lines("look at node is repeated")) == 1


POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [nodes/status], operations: [UPDATE], resourceNames: [NODE]}
  validations:
    - {expression: "object.status.capacity == oldObject.status.capacity", message: this Node is frozen, reason: Forbidden}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
"""


def is_refused(node: PlayedNode) -> bool:
    """Whether a change of the Node's capacity is refused; nothing is changed."""
    try:
        node.client.patch(Node.Status, node.name, {"status": {"capacity": {"example.com/probe": "1"}}}, dry_run=True)
    except ApiError as error:
        return error.status.code == 403
    return False
