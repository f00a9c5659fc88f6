"""NodeDevices that nobody uses end, and the API server holds the operator to those: with the operator's own token."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.accounts import client_with_token
from tests.cluster.agent_objects import now_text
from tests.cluster.api import ApiError, Client, NodeDevice, PatchType
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation, apply_status, device
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode, full, operator_writes

pytestmark = pytest.mark.cluster

CORDON: dict[str, Any] = {"spec": {"cordonedDevices": [{"id": "gpu-0"}]}}
HELD = allocation("uid-a", "main", "gpu-0")


def exists(node: PlayedNode, resource: str) -> bool:
    found = list(node.client.list(NodeDevice, fields={"metadata.name": node.nd_name(resource)}))
    return bool(found)


def test_what_has_been_gone_for_an_hour_is_deleted_and_the_rest_stays(
    operator: OperatorProcess, played: Callable[[], PlayedNode]
) -> None:
    node = played()
    kept = {"example.com/cordoned": {}, "example.com/lately": {"since": now_text()}}
    for resource in (GPU, *kept):
        node.make(resource)
        node.publish(resource, healthy=1, **{"state": "Gone", "since": now_text(-3601), **kept.get(resource, {})})
        if resource.endswith("cordoned"):
            node.client.patch(NodeDevice, node.nd_name(resource), CORDON, patch_type=PatchType.MERGE)
    wait_until(lambda: not exists(node, GPU), "the NodeDevice is deleted", 90)
    # one more round of the operator
    node.make(NIC)
    node.publish(NIC, state="Gone", since=now_text(-3601))
    wait_until(lambda: not exists(node, NIC), "the other one is deleted", 90)
    assert all(exists(node, resource) for resource in kept)
    for resource in kept:
        node.client.delete(NodeDevice, node.nd_name(resource))


def end(node: PlayedNode, *held: dict[str, Any], resource: str = GPU, **more: Any) -> None:
    """Publish what an agent does whose configuration lost that resource."""
    status = full(devices=[device(i, "Unhealthy") for i in ("gpu-0",) if held], allocations=held, state="Gone", **more)
    for condition in status["conditions"]:
        if condition["type"] == "Registered":
            condition["reason"] = "NotConfigured"
    apply_status(node.client, node.nd_name(resource), status)


def deletions(node: PlayedNode, resource: str = GPU) -> int:
    """How often the operator has tried so far."""
    tried = operator_writes(node.control_plane, f"/{names.NODE_DEVICES}/{node.nd_name(resource)}")
    return sum(event["verb"] == "delete" for event in tried)


def test_what_is_not_configured_is_withdrawn_and_deleted_at_once(
    operator: OperatorProcess, played: Callable[[], PlayedNode]
) -> None:
    """Its capacity before it: a Node whose object went first would show its number for some seconds more."""
    node = played().settle()
    end(node)
    wait_until(lambda: not exists(node, GPU), "the NodeDevice is deleted")
    assert node.shown() == (None, None)
    assert operator.lines("unused NodeDevice deleted")[-1]["reason"] == "nothing configures it any more"
    assert node.events("NotConfigured", node.nd_name()) == [
        f"{GPU} on {node.name}: its built-in plugin was taken out of the configuration"
    ]
    # and it comes back
    node.make()
    node.advertise(3)
    node.wait_condition("Ready", "True")


def test_it_is_not_tried_while_somebody_needs_it(operator: OperatorProcess, played: Callable[[], PlayedNode]) -> None:
    """Held, then waited for, then cordoned; and then it goes without any other event."""
    node = played().settle()
    waiting = [{"podUID": "uid-b", "container": "main", "reason": "NotConfigured", "namespace": "default", "name": "b"}]
    end(node, HELD)
    node.wait_condition("Ready", "False", "NotConfigured")
    node.wait_shown(1)
    end(node, waiting=waiting)
    node.wait_shown(None)
    node.client.patch(NodeDevice, node.nd_name(), CORDON, patch_type=PatchType.MERGE)
    end(node)
    node.make(NIC)
    node.publish(NIC, healthy=1)
    node.wait_shown(1, NIC)
    end(node, resource=NIC)
    wait_until(lambda: not exists(node, NIC), "the other one is deleted")
    # another one may be tried twice, where its conditions are written meanwhile
    assert (exists(node, GPU), deletions(node), deletions(node, NIC) > 0) == (True, 0, True)
    node.client.patch(NodeDevice, node.nd_name(), {"spec": {"cordonedDevices": []}}, patch_type=PatchType.MERGE)
    wait_until(lambda: not exists(node, GPU), "it is deleted once nobody cordons it")


@pytest.fixture(scope="module")
def token(installed: ControlPlane) -> Iterator[Client]:
    with client_with_token(installed, SYSTEM_NAMESPACE, "nodedevice-operator") as client:
        yield client


@pytest.mark.parametrize(
    ("status", "spec", "sentence"),
    [
        pytest.param({"state": "Running"}, {}, "only when its device plugin is gone", id="its plugin runs"),
        pytest.param({"state": "Stopped"}, {}, "only when its device plugin is gone", id="its plugin restarts"),
        pytest.param({"allocations": [HELD]}, {}, "held or waited for", id="a pod holds a device"),
        pytest.param({"allocations": [{**HELD, "releasing": True}]}, {}, "held or waited for", id="until it ends"),
        pytest.param({"allocationsOmitted": 1}, {}, "held or waited for", id="unlisted allocations"),
        pytest.param(
            {"waiting": [{"podUID": "uid-a", "container": "main", "reason": "NotEnoughDevices"}]},
            {},
            "held or waited for",
            id="a pod waits",
        ),
        pytest.param({}, CORDON, "with an administrator's cordons", id="a cordon"),
    ],
)
def test_the_operators_token_deletes_nothing_that_is_used(
    token: Client, played: Callable[[], PlayedNode], status: dict[str, Any], spec: dict[str, Any], sentence: str
) -> None:
    node = played()
    node.make()
    node.publish(healthy=1, **{"state": "Gone", **status})
    if spec:
        node.client.patch(NodeDevice, node.nd_name(), spec, patch_type=PatchType.MERGE)
    with pytest.raises(ApiError) as refused:
        token.delete(NodeDevice, node.nd_name())
    assert refused.value.status.code == 403
    assert "'nodedevice-operator-nodedevices'" in str(refused.value.status.message)
    assert sentence in str(refused.value.status.message)


def test_a_nodedevice_without_a_status_is_not_the_operators_to_delete(
    token: Client, played: Callable[[], PlayedNode]
) -> None:
    node = played()
    node.make()
    with pytest.raises(ApiError, match="only when its device plugin is gone"):
        token.delete(NodeDevice, node.nd_name())
