"""The biggest NodeDevices: what the CRD's rules cost when they run, and what an object may weigh.

A rule may pass the API server's estimate when the CRD is installed and still be refused for its cost on a big object, so the
biggest are written for real, with IDs that differ only in their last characters: the dearest to compare.
"""

from collections.abc import Iterator

import pytest
from lightkube import Client
from nodedevice_api.names import node_device_name

from hack.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import (
    Body,
    NodeDevice,
    allocation,
    apply_status,
    device,
    node_device,
    refusal,
)

pytestmark = pytest.mark.cluster

NAME = node_device_name("big-node", "example.com/gpu")


@pytest.fixture
def client(installed: ControlPlane) -> Iterator[Client]:
    installed.client.create(node_device(NAME, nodeName="big-node"))
    yield installed.client
    installed.client.delete(NodeDevice, NAME)


def long_id(number: int) -> str:
    return f"{'d' * 124}{number:04}"


def half_held(count: int, held_by: int) -> Body:
    """A status with `count` devices, half of them held, by `held_by` containers with equally many each."""
    held = count // 2
    share = held // held_by
    return {
        **{"total": count, "healthy": count, "allocated": held, "available": count - held},
        "devices": [device(long_id(number)) for number in range(count)],
        "allocations": [
            allocation(f"uid-{n:04}", "main", *(long_id(i) for i in range(n * share, (n + 1) * share)))
            for n in range(held_by)
        ],
    }


@pytest.mark.parametrize(
    ("count", "held_by"),
    [
        pytest.param(256, 128, id="the most that is listed whole"),
        pytest.param(4096, 2, id="the most devices, 1024 in one container"),
        pytest.param(4096, 1024, id="the most devices and the most allocations"),
    ],
)
def test_takes_the_biggest(client: Client, count: int, held_by: int) -> None:
    apply_status(client, NAME, half_held(count, held_by))
    stored = client.get(NodeDevice, NAME)["status"]
    assert len(stored["devices"]) == count
    assert len(stored["allocations"]) == held_by


def test_rules_hold_at_the_far_end_of_a_big_list(client: Client) -> None:
    status = half_held(4096, 1024)
    status["devices"][-1]["id"] = status["devices"][-2]["id"]
    assert "devices must be sorted by id, each id once" in refusal(lambda: apply_status(client, NAME, status))


def test_one_device_of_a_big_list_changes(client: Client) -> None:
    apply_status(client, NAME, half_held(4096, 2))
    status = half_held(4096, 2)
    status["devices"][-1] = device(long_id(4095), "Unhealthy", reason="ReportedUnhealthy")
    status.update(healthy=4095, available=2047)
    apply_status(client, NAME, status)
    assert client.get(NodeDevice, NAME)["status"]["devices"][-1]["health"] == "Unhealthy"
