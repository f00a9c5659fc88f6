"""What a browser gets: everything once, then what has changed, however slow it is."""

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from kubectl_nodedevice.cluster import NodeDevice, Pod
from kubectl_nodedevice.page import fleet as module
from kubectl_nodedevice.page.fleet import Fleet
from kubectl_nodedevice.records import record_of

from tests.unit.cli.objects import device, node_device, pod

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def put(fleet: Fleet, node: str, *devices: dict[str, Any]) -> None:
    fleet.put(record_of(NodeDevice, node_device(node, devices=[*devices] or None)))


def changed(fleet: Fleet, sequence: int) -> tuple[int, list[str], list[str]]:
    """Since then: up to when, the nodes of what is new, and what is gone."""
    found = fleet.since(sequence)
    assert found is not None
    now, texts, gone = found
    return now, sorted(json.loads(each)["node"] for each in texts), [*gone]


def test_a_change_is_sent_once_and_no_change_is_not() -> None:
    fleet = Fleet()
    put(fleet, "a")
    put(fleet, "b")
    everything = json.loads(fleet.everything({"cluster": "c"}, "[]"))
    assert sorted(each["node"] for each in everything["squares"]) == ["a", "b"]
    sequence = everything["sequence"]
    put(fleet, "a")
    assert fleet.since(sequence) == (sequence, [], [])
    for health in ("Unhealthy", "Healthy", "Unhealthy"):
        put(fleet, "b", device("gpu-0", health))
    now, squares, gone = changed(fleet, sequence)
    assert (squares, gone) == (["b"], [])
    assert fleet.since(now) == (now, [], [])


def test_an_event_without_a_change_hides_no_other_change() -> None:
    fleet = Fleet()
    put(fleet, "a")
    put(fleet, "b")
    sequence = fleet.sequence
    put(fleet, "b", device("gpu-0", "Unhealthy"))
    put(fleet, "a")
    assert changed(fleet, sequence)[1] == ["b"]


def test_a_deleted_one_is_named_until_it_is_made_again() -> None:
    fleet = Fleet()
    put(fleet, "a")
    [name] = fleet.names()
    sequence = fleet.sequence
    fleet.remove(name)
    fleet.remove("never there")
    assert fleet.since(sequence) == (fleet.sequence, [], [name])
    put(fleet, "a")
    assert changed(fleet, sequence)[1:] == (["a"], [])


def test_a_browser_that_missed_too_much_loads_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_GONE", 2)
    fleet = Fleet()
    for number in range(4):
        put(fleet, f"n{number}")
    sequence = fleet.sequence
    for name in fleet.names():
        fleet.remove(name)
    assert fleet.since(sequence) is None
    assert fleet.since(fleet.sequence + 1) is None, "of an earlier start"


def test_needs_are_grouped_by_cause() -> None:
    fleet = Fleet()
    for number in range(5):
        broken = [device(f"gpu-{at}", "Unhealthy", reason="XidError", message="Xid 79") for at in range(3)]
        put(fleet, f"n{number}", *broken, device("gpu-9"))
    for number in range(4):
        fleet.put_pod(record_of(Pod, pod(f"p{number}", node="", phase="Pending")))
    devices, pods = fleet.needs(NOW)
    assert devices["text"].startswith("15 devices of example.com/gpu on 5 nodes (n0, n1, n2 and 2 more) are unhealthy")
    assert devices["command"] == "kubectl nodedevice why device n0 gpu-0 --resource example.com/gpu"
    named = "4 pods (default/p0, default/p1, default/p2 and 1 more)"
    assert pods["text"].startswith(f"{named} are pending for example.com/gpu")
    fleet.remove_pod("default/p0")
    assert fleet.needs(NOW)[1]["text"].startswith("3 pods")


def test_it_says_how_current_each_kind_is() -> None:
    fleet = Fleet()
    assert not fleet.is_read()
    fleet.source("nodedevices", as_of=time.time())
    fleet.source("pending pods", problem="forbidden", is_forbidden=True)
    assert fleet.is_read()
    found = fleet.sources()["sources"]
    assert found["nodedevices"].pop("asOf") > 0
    assert found == {
        "nodedevices": {"problem": "", "isForbidden": False, "isStale": False, "unread": ""},
        "pending pods": {"problem": "forbidden", "isForbidden": True, "asOf": 0.0, "isStale": False, "unread": ""},
    }
    # a request without a response is stale before its time limit
    fleet.source("nodedevices", as_of=time.time() - 100)
    assert fleet.sources()["sources"]["nodedevices"]["isStale"]
