"""The biggest NodeDevices: what the CRD's rules cost when they run, and what an object may weigh.

A rule may pass the API server's estimate when the CRD is installed and still be refused for its cost on a big object, so the
biggest are written for real, with IDs that differ only in their last characters: the dearest to compare.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from nodedevice_api.names import node_device_name

from tests.cluster.api import Client, NodeDevice, PatchType
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.crds.custom_resources import (
    Body,
    allocation,
    apply_status,
    condition,
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


def test_takes_the_most_devices_and_the_most_allocations(client: Client) -> None:
    apply_status(client, NAME, half_held(4096, 1024))
    stored = client.get(NodeDevice, NAME)["status"]
    assert (len(stored["devices"]), len(stored["allocations"])) == (4096, 1024)


TOO_LONG = "all cordons of a NodeDevice have at most 128 KiB"


def cordon(client: Client, cordons: list[Body]) -> Any:
    patch = {"spec": {"cordonedDevices": cordons}}
    return client.patch(NodeDevice, NAME, patch, patch_type=PatchType.MERGE, field_manager="people")


def cordons_of(count: int, length: int, text: str = "x") -> list[Body]:
    """So many, each of that weight beside its 64."""
    return [{"id": f"d{number:04}", "reason": text * (length - 5)} for number in range(count)]


def filled_lists(cordons: list[Body]) -> Body:
    """What an agent publishes at most: four lists of 256 KiB."""
    devices = [device(f"{'d' * 60}{number:04}", attributes={"a": "x" * 120}) for number in range(900)]
    waiting = [
        {"podUID": f"uid-{number}", "container": "main", "reason": "Wait", "message": "x" * 960}
        for number in range(256)
    ]
    held = [allocation(f"uid-{number:04}", "main", *(f"{i:064}" for i in range(4))) for number in range(750)]
    return {
        **{"total": 3900, "healthy": 900, "allocated": 3000, "available": 900, "devicesOmitted": 3000},
        **{"devices": devices, "allocations": held, "waiting": waiting, "rememberedCordons": cordons * 2},
        "conditions": [condition(f"Agents{number}", message="x" * 1024) for number in range(5)],
    }


@pytest.mark.parametrize(
    "cordons",
    [
        pytest.param(cordons_of(128, 960), id="with long reasons"),
        pytest.param([{"id": f"{number:x}"} for number in range(1900)], id="as many as possible"),
        pytest.param(cordons_of(26, 820, "<"), id="of what is stored as six bytes each"),
    ],
)
def test_beside_any_cordons_status_has_room(client: Client, cordons: list[Body]) -> None:
    cordon(client, cordons)
    assert TOO_LONG in refusal(lambda: cordon(client, [*cordons, *cordons_of(8, 1000)]))
    status = filled_lists(cordons[: len(cordons) // 2])
    assert len(json.dumps(status)) > 700_000
    apply_status(client, NAME, status)
    operators = {"conditions": [condition(kind, message="x" * 2048) for kind in ("Ready", "Advertised", "Conflict")]}
    apply_status(client, NAME, operators, manager="nodedevice-operator")
