"""A NodeDeviceConfig has room for its status, whatever its writer puts into its spec."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.api import ApiError, Client, NodeDeviceConfig, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.integration.crds.custom_resources import condition, node_device_config

pytestmark = pytest.mark.cluster

_NAME = "long"


def _config(octets: int) -> Any:
    """A spec of about so many octets, in 40 environment variables."""
    env = {f"A{number}": "x" * (octets // 40) for number in range(40)}
    group = {"paths": [{"path": "/dev/a"}], "env": env}
    return node_device_config(_NAME, {"generic": [{"resourceName": "example.com/a", "groups": [group]}]})


def _refusal(client: Client, config: Any) -> str:
    """The message; "" if the API server takes it, which is undone."""
    try:
        client.create(config)
    except ApiError as refused:
        return refused.status.message or ""
    client.delete(NodeDeviceConfig, _NAME)
    return ""


@pytest.fixture
def client(installed: ControlPlane) -> Iterator[Client]:
    # A policy is in force some moments after it was made.
    wait_until(lambda: "more than 1 MiB" in _refusal(installed.client, _config(1_200_000)), "the policy to be in force")
    installed.client.create(_config(1_000_000))
    yield installed.client
    installed.client.delete(NodeDeviceConfig, _NAME)


def test_a_spec_leaves_room_for_a_status(client: Client) -> None:
    status: dict[str, Any] = {
        "refusals": [{"message": f"{number}" * 512, "nodes": 1} for number in range(8)],
        "conditions": [condition(f"T{number}", message="m" * 32_768) for number in range(8)],
    }
    client.patch(NodeDeviceConfig.Status, _NAME, {"status": status}, patch_type=PatchType.MERGE)
    longer = _config(1_100_000).to_dict()["spec"]
    with pytest.raises(ApiError, match="split it by nodeSelector"):
        client.patch(NodeDeviceConfig, _NAME, {"spec": longer}, patch_type=PatchType.MERGE)
