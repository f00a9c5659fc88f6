"""The operator deletes unused NodeDevices. test_admission checks that the API server lets it delete no others."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cluster.agent_objects import now_text
from tests.cluster.api import NodeDevice, PatchType
from tests.cluster.waiting import wait_until
from tests.integration.operator_process import GPU, NIC, OperatorProcess, PlayedNode

pytestmark = pytest.mark.cluster

CORDON: dict[str, Any] = {"spec": {"cordonedDevices": [{"id": "gpu-0"}]}}


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
