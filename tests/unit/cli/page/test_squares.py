"""One NodeDevice as the browser gets it: a letter for each device, and its holders."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from kubectl_nodedevice.cluster import NodeDevice
from kubectl_nodedevice.page.squares import Square, square_of
from kubectl_nodedevice.records import record_of

from tests.unit.cli import objects
from tests.unit.cli.objects import allocation, condition, device, node_device

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def square(devices: list[dict[str, Any]], spec: dict[str, Any] | None = None, **status: Any) -> Square:
    found = node_device("node-a", devices=devices, **status)
    found["spec"] |= spec or {}
    return square_of(record_of(NodeDevice, found), NOW)


def data(found: Square) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(found.text)
    return made


# by ID: the letter of its state, and the device
DEVICES = {
    "free": ("f", device("free")),
    "held": ("h", device("held")),
    "sick": ("b", device("sick", "Unhealthy", reason="XidError")),
    "sick-and-held": ("b", device("sick-and-held", "Unhealthy")),
    "cordoned": ("c", device("cordoned")),
    "leaving": ("r", device("leaving")),
    "gone": ("m", device("gone", "Unhealthy", presence="Missing")),
    "shared": ("p", device("shared", parts={"total": 4, "healthy": 4, "allocated": 1, "available": 3})),
    "other": ("u", device("other", "Restarting")),
}


def test_states_and_holders() -> None:
    found = square(
        [each for _, each in DEVICES.values()],
        {"cordonedDevices": [{"id": "cordoned"}]},
        allocations=[
            allocation("a", ("held", "sick-and-held")),
            allocation("b", ("leaving",), releasing=True),
            allocation("c", (), parts=[{"parent": "shared", "parts": 1}]),
        ],
        devicesOmitted=7,
    )
    made = data(found)
    assert dict(zip(made["ids"], made["states"], strict=True)) == {name: state for name, (state, _) in DEVICES.items()}
    holders = {(made["ids"][index], pod, parts) for index, pod, parts in made["holders"]}
    assert holders == {
        ("held", "default/a", 0),
        ("sick-and-held", "default/a", 0),
        ("leaving", "default/b", 0),
        ("shared", "default/c", 1),
    }
    assert made["parts"] == [[made["ids"].index("shared"), 3, 4]]
    assert made["more"] == 7


@pytest.mark.parametrize(
    ("conditions", "ready", "silent"),
    [
        ([condition("Ready"), condition("AgentReady")], "", ""),
        ([condition("Ready", "False", "EndpointGone"), condition("AgentReady")], "EndpointGone", ""),
        ([condition("Ready", "False", "X"), condition("AgentReady", "Unknown")], "X", objects.THEN),
        ([], "NotReconciled", ""),
    ],
    ids=["fine", "plugin gone", "agent silent", "no operator"],
)
def test_what_is_wrong_as_a_whole(conditions: list[Any], ready: str, silent: str) -> None:
    made = data(square([device("a")], conditions=conditions))
    assert (made["ready"], made["silent"]) == (ready, silent)


def test_only_what_needs_attention_is_kept_beside() -> None:
    assert square([device("a"), device("b")], allocations=[allocation("p", ("a",))]).rest is None
    needy = square([device("a"), device("b", "Unhealthy", reason="X")], allocations=[allocation("p", ("b",))])
    assert needy.rest is not None
    assert [each.id for each in needy.rest.devices] == ["b"]
    assert [each.code for each in needy.needs(NOW)] == ["DeviceBrokenHeld"]
