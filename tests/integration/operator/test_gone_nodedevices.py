"""NodeDevices that nobody uses end, and the API server holds the operator to those: with the operator's own token."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cluster.accounts import client_with_token
from tests.cluster.agent_objects import now_text
from tests.cluster.api import ApiError, Client, NodeDevice, PatchType
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import allocation, denied
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode

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
    said = denied(lambda: token.delete(NodeDevice, node.nd_name()), "nodedevice-operator-nodedevices")
    assert sentence in said


def test_a_nodedevice_without_a_status_is_not_the_operators_to_delete(
    token: Client, played: Callable[[], PlayedNode]
) -> None:
    node = played()
    node.make()
    with pytest.raises(ApiError, match="only when its device plugin is gone"):
        token.delete(NodeDevice, node.nd_name())
