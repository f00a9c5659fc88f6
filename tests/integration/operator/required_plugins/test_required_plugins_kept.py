"""The operator keeps the policy that makes pods wait for their agent: first of all, against everybody, and while it is needed."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from nodedevice_operator.requiredplugins.policy import (
    BINDINGS,
    NAME,
    POLICIES,
    SETTLE_SECONDS,
    binding_spec,
    policy_spec,
)

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster


@pytest.fixture
def node(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayedNode]:
    made = PlayedNode(installed)
    made.renew_lease()
    yield made
    made.remove()
    wait_until(lambda: stored(installed, POLICIES) is None, "the policy is gone with its last node", 90)


def stored(control_plane: ControlPlane, kind: str) -> Any:
    """Spec of the policy or its binding; None where it is not there."""
    found = json.loads(control_plane.kubectl("get", kind, "-o", "json", f"--field-selector=metadata.name={NAME}"))
    return found["items"][0]["spec"] if found["items"] else None


def wait_names(control_plane: ControlPlane, *resource_names: str) -> None:
    wanted = [policy_spec(resource_names), binding_spec()]
    what = f"the policy holds {resource_names}"
    wait_until(lambda: [stored(control_plane, kind) for kind in (POLICIES, BINDINGS)] == wanted, what, 90)


def test_the_policy_comes_before_capacity(installed: ControlPlane, operator: OperatorProcess, node: PlayedNode) -> None:
    node.make()
    node.advertise(2, delivery="nri")

    def moments(path: str) -> list[datetime]:
        return [datetime.fromisoformat(each["requestReceivedTimestamp"]) for each in writes(installed, path)]

    [capacity] = moments(f"/nodes/{node.name}/status")
    binding = max(moments(f"{BINDINGS}/{NAME}"))
    assert (capacity - binding).total_seconds() >= SETTLE_SECONDS
    wait_names(installed, GPU)
    assert operator.metric("nodedevice_operator_required_plugins_names") == 1


def writes(control_plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    """Patches of the operator to that path, oldest first."""
    return [
        event
        for event in control_plane.audit_events()
        if path in event["requestURI"] and event["verb"] == "patch" and "operator" in event["user"]["username"]
    ]


def test_whatever_others_do_to_it_is_undone(
    installed: ControlPlane, operator: OperatorProcess, node: PlayedNode
) -> None:
    """Twice within a minute; the third time is reported, and waits. A process that has just started has seen none."""
    node.make()
    node.publish(healthy=2, delivery="nri")
    wait_names(installed, GPU)
    never = {"name": "never", "expression": "false"}

    def patch(kind: str, spec: dict[str, Any]) -> None:
        installed.kubectl("patch", kind, NAME, "--type=merge", "-p", json.dumps({"spec": spec}))
        wait_names(installed, GPU)

    patch(POLICIES, {"failurePolicy": "Ignore"})
    patch(POLICIES, {"matchConditions": [*policy_spec((GPU,))["matchConditions"], never]})
    patch(BINDINGS, {"matchResources": {"objectSelector": {"matchLabels": {"a": "b"}}}})
    operator.stop()
    operator.start()
    patch(POLICIES, {"matchConstraints": {"namespaceSelector": {"matchLabels": {"a": "b"}}}})
    for kind in (POLICIES, BINDINGS):
        installed.kubectl("delete", kind, NAME)
        wait_names(installed, GPU)
    installed.kubectl("delete", POLICIES, NAME)
    assert "another client changes or deletes it again and again" in node.wait_events("PolicyConflict", about=NAME)[0]
    operator.stop()
    operator.start()
    wait_names(installed, GPU)
