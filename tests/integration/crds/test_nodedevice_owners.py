"""Who owns what in a NodeDevice: the agent, the operator and several administrators write side by side.

Server-side apply keeps them apart: conditions are a map by type, cordons a map by id, everything else in status is the agent's.
"""

import json
from collections.abc import Callable, Iterator

import pytest
from nodedevice_api.names import (
    AGENT_FIELD_MANAGER,
    API_VERSION,
    NODE_DEVICE,
    OPERATOR_FIELD_MANAGER,
    Condition,
    node_device_name,
)

from tests.cluster.api import Client, NodeDevice
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import CommandError
from tests.integration.crds.custom_resources import Body, apply_status, condition, free, node_device

pytestmark = pytest.mark.cluster

NAME = node_device_name("owners-node", "example.com/gpu")


@pytest.fixture
def client(installed: ControlPlane) -> Iterator[Client]:
    body = node_device(NAME, nodeName="owners-node")
    installed.client.apply(body, field_manager=AGENT_FIELD_MANAGER)
    yield installed.client
    installed.client.delete(NodeDevice, NAME)


def conditions(client: Client) -> dict[str, str]:
    """Status of each condition that is stored, by type."""
    stored = client.get(NodeDevice, NAME)["status"].get("conditions", [])
    return {each["type"]: each["status"] for each in stored}


def test_conditions_of_agent_and_operator_stand_side_by_side(client: Client) -> None:
    agents: Body = {**free("a"), "conditions": [condition(Condition.REGISTERED), condition(Condition.HEALTHY)]}
    operators: Body = {"conditions": [condition(Condition.READY), condition(Condition.ADVERTISED)]}
    apply_status(client, NAME, agents, AGENT_FIELD_MANAGER)
    apply_status(client, NAME, operators, OPERATOR_FIELD_MANAGER)
    assert client.get(NodeDevice, NAME)["status"]["total"] == 1
    assert conditions(client) == {"Registered": "True", "Healthy": "True", "Ready": "True", "Advertised": "True"}

    apply_status(client, NAME, {**free("a", "b"), "conditions": [condition(Condition.REGISTERED, "False")]})
    apply_status(client, NAME, {"conditions": [condition(Condition.READY, "False")]}, OPERATOR_FIELD_MANAGER)
    assert client.get(NodeDevice, NAME)["status"]["total"] == 2
    # each left one out, and only its own went
    assert conditions(client) == {"Registered": "False", "Ready": "False"}


Cordon = Callable[..., None]


@pytest.fixture
def cordon(installed: ControlPlane, client: Client) -> Cordon:
    """A tool with a field manager of its own and a file with all of its cordons: `who` takes just these out of service."""

    def apply(who: str, *device_ids: str) -> None:
        spec = {"cordonedDevices": [{"id": device_id, "reason": who} for device_id in device_ids]} if device_ids else {}
        body = {"apiVersion": API_VERSION, "kind": NODE_DEVICE, "metadata": {"name": NAME}, "spec": spec}
        installed.kubectl("apply", "--server-side", f"--field-manager={who}", "-f", "-", stdin=json.dumps(body))

    return apply


def cordons(client: Client) -> dict[str, str]:
    """Reason of each cordon that is stored, by device ID."""
    return {each["id"]: each["reason"] for each in client.get(NodeDevice, NAME)["spec"].get("cordonedDevices", [])}


def test_cordons_of_two_people_stand_side_by_side(client: Client, cordon: Cordon) -> None:
    cordon("alice", "gpu-3", "gpu-4")
    cordon("bob", "*")
    assert cordons(client) == {"gpu-3": "alice", "gpu-4": "alice", "*": "bob"}
    cordon("alice", "gpu-4")
    assert cordons(client) == {"gpu-4": "alice", "*": "bob"}
    cordon("alice")
    assert cordons(client) == {"*": "bob"}


def test_cordon_of_somebody_else_is_not_taken_over_by_accident(client: Client, cordon: Cordon) -> None:
    cordon("alice", "gpu-3")
    with pytest.raises(CommandError, match=r'conflict with "alice".*cordonedDevices'):
        cordon("bob", "gpu-3")
    assert cordons(client) == {"gpu-3": "alice"}
