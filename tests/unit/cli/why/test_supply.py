"""Links between an extended resource and a pod, obstacle by obstacle: each field of what is said, and bounds."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
from kubectl_nodedevice.cluster import Condition, Lease
from kubectl_nodedevice.why.explanation import Obstacle
from kubectl_nodedevice.why.facts import LEASES, NODES, Facts, Unread
from kubectl_nodedevice.why.kinds import DeviceClass
from kubectl_nodedevice.why.links import supply
from kubectl_nodedevice.why.links.devices import Wanted
from nodedevice_kube.planner import Need

from tests.unit.cli.why.clusters import GPU, NIC, OLD, base, each_device, each_node, gpus, of_node_a

_NAME: Final = "node-a.example.com.gpu"
_UNREAD_LEASES: Final = (Unread(LEASES, "no"),)
_TWO: Final = Wanted(GPU, (Need(2),))


def of(facts: Facts, wanted: Wanted = _TWO) -> list[Obstacle]:
    node = facts.node("node-a")
    assert node is not None
    return list(supply.obstacles(facts, node, wanted))


def ours(code: str, detail: str = "", as_of: str = "", **fields: str) -> Obstacle:
    return Obstacle(code, "node-a", GPU, detail, as_of, fields)


def with_conditions(facts: Facts, **conditions: tuple[str, str]) -> Facts:
    """Of GPUs of node-a: status and reason of each."""
    new = {kind: Condition(kind, *words, since=OLD) for kind, words in conditions.items()}
    return of_node_a(facts, lambda found: replace(found, conditions={**found.conditions, **new}))


def showing(facts: Facts, **allocatable: str) -> Facts:
    """What the Node says, by the last word of the resource."""
    by_name = {f"example.com/{each}": number for each, number in allocatable.items()}
    nodes = [replace(each, allocatable=by_name) if each.meta.name == "node-a" else each for each in facts.nodes]
    return replace(facts, nodes=tuple(nodes))


_NO_AGENT: Final = Obstacle("NoAgent", "node-a", detail="it has no Lease")
_FOUR_MINUTES: Final = Obstacle("AgentSilent", "node-a", detail="for 4 min")


@pytest.mark.parametrize(
    ("leases", "ready", "unread", "expected"),
    [
        (None, None, (), ()),
        ((), None, (), (_NO_AGENT,)),
        ((), ("False", "LeaseMissing"), _UNREAD_LEASES, (_NO_AGENT,)),
        ((), ("False", "LeaseExpired"), _UNREAD_LEASES, (_FOUR_MINUTES,)),
        ((), ("True", "LeaseRenewed"), (), (_NO_AGENT,)),
        (None, ("False", "LeaseExpired"), (), (Obstacle("AgentSilent", "node-a", detail="for 5 s"),)),
        (None, ("Unknown", ""), (), (Obstacle("AgentSilent", "node-a", detail="for 5 s"),)),
    ],
)
def test_agents(
    leases: tuple[Lease, ...] | None, ready: tuple[str, str] | None, unread: Any, expected: tuple[Obstacle, ...]
) -> None:
    facts = replace(base(), unread=unread, leases=base().leases if leases is None else leases)
    conditions = {"AgentReady": Condition("AgentReady", *ready, since=OLD)} if ready else {}
    found = replace(gpus("node-a"), conditions=conditions)
    assert supply.agent_obstacles(facts, "node-a", found if ready else None) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({}, ours("CapacityBehind", "it shows 1, 4 are available", node_device=_NAME)),
        ({"Conflict": ("True", "Kept")}, ours("CapacityConflict", "Kept, it shows 1", node_device=_NAME)),
        *(
            ({"Advertised": ("False", reason)}, ours(code, reason, node_device=_NAME))
            for code, reasons in {
                "PolicyRefuses": ("PolicyPending", "TooManyNames", "NameExcluded"),
                "CapacityRefused": ("UpdateRefused", "WriteRefused"),
            }.items()
            for reason in reasons
        ),
    ],
)
def test_a_node_that_shows_too_few(conditions: Mapping[str, tuple[str, str]], expected: Obstacle) -> None:
    facts = with_conditions(showing(base(), gpu="1"), **conditions)
    assert of(facts) == [expected]
    # enough for one, and nothing is known of a Node that may not be read
    assert of(facts, Wanted(GPU)) == []
    assert of(replace(facts, unread=(Unread(NODES, "no"),))) == []


@pytest.mark.parametrize(
    ("changes", "is_behind"),
    [
        ({"allocated": 2, "available": 2}, False),
        ({"allocated": 2, "available": 2, "reserved": 1}, True),
        ({"allocated": 3, "available": 2}, True),
    ],
)
def test_what_the_scheduler_gives_out_yet(changes: Mapping[str, Any], is_behind: bool) -> None:
    facts = of_node_a(base(), lambda found: replace(found, **changes))
    expected = [ours("CapacityBehind", "it shows 4, 2 are available", node_device=_NAME)]
    assert of(facts) == (expected if is_behind else [])
    by_kubelet = of_node_a(facts, lambda found: replace(found, agent=replace(found.agent, delivery="kubelet")))
    assert of(by_kubelet) == []


def test_what_is_short_besides_is_said_and_the_number_is_not() -> None:
    facts = each_device(showing(base(), gpu="1"), lambda device: replace(device, health="Unhealthy"), healthy=0)
    assert [each.code for each in of(facts)] == ["DevicesBroken"]
    silent = with_conditions(facts, AgentReady=("False", "LeaseExpired"), Injectable=("False", "x"))
    assert [each.code for each in of(silent)] == ["AgentSilent", "NotInjectable", "DevicesBroken"]
    assert of(silent)[-1].as_of == "5 s ago"


def test_a_number_beside_a_kubelet() -> None:
    facts = of_node_a(base(), lambda found: replace(found, agent=replace(found.agent, served_by="kubelet")))
    fewer = Obstacle("NodeShowsFewer", "node-a", GPU, "it shows 1", fields={"count": "2"})
    assert of(showing(facts, gpu="1")) == [fewer]
    assert of(showing(facts, gpu="2")) == []
    # of a plugin that is away, or devices that are short, the number follows
    away = with_conditions(showing(facts, gpu="1"), Registered=("False", "EndpointGone"))
    assert [each.code for each in of(away)] == ["PluginAway"]
    broken = each_device(showing(facts, gpu="1"), lambda device: replace(device, health="Unhealthy"), healthy=0)
    assert [each.code for each in of(broken)] == ["DevicesBroken"]
    assert of(with_conditions(broken, WatchesCurrent=("False", "")))[0].as_of == "4 min ago"


def test_a_number_beside_a_driver() -> None:
    facts = showing(base(), nic="3")
    assert of(facts, Wanted(NIC)) == [Obstacle("StrayCapacity", "node-a", NIC, "it shows 3")]
    owned = each_node(facts, lambda node: replace(node, writers={NIC: f"the writer of {node.meta.name}"}))
    detail = "it shows 3, written by the writer of node-a"
    assert of(owned, Wanted(NIC)) == [Obstacle("StrayCapacity", "node-a", NIC, detail)]
    assert of(showing(base(), nic="0"), Wanted(NIC, (Need(4),))) == []


@pytest.mark.parametrize(("reason", "codes"), [("", ["PluginAway"]), ("Xid79", ["PluginAway", "DevicesBroken"])])
def test_a_plugin_that_is_away_breaks_no_device_without_a_reason_of_its_own(reason: str, codes: list[str]) -> None:
    away = with_conditions(base(), Registered=("False", "EndpointGone"))
    facts = each_device(away, lambda device: replace(device, health="Unhealthy", reason=reason), healthy=0)
    assert [each.code for each in of(facts)] == codes


def test_of_two_classes_the_better_one_counts() -> None:
    facts = replace(base(), classes=(DeviceClass("other", NIC, "other.example.com"), *base().classes))
    assert of(facts, Wanted(NIC, (Need(4),))) == []
    assert [each.code for each in of(facts, Wanted(NIC, (Need(5),)))] == ["TooFewTogether"]


def test_a_node_device_that_no_agent_has_written() -> None:
    invalid = ours("NodeDeviceInvalid", "no agent has written its status", node_device=_NAME)
    facts = of_node_a(base(), lambda found: replace(found, total=None, conditions={}))
    assert of(facts) == [invalid]
    # nor its devices: nothing in particular takes them
    bare = of_node_a(facts, lambda found: replace(found, devices=(), healthy=0, available=0))
    assert of(bare) == [invalid, ours("TooFewTogether", "it has 0", count="2")]
