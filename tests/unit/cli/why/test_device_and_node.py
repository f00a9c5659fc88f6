"""What `why` says of one device and of one node."""

from dataclasses import replace
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Condition, Cordon, Device, NodeDevice, PartCounts, Taint
from kubectl_nodedevice.why import device as of_device
from kubectl_nodedevice.why import nodes as of_node
from kubectl_nodedevice.why.explanation import Explanation, Obstacle
from kubectl_nodedevice.why.facts import NODE_DEVICES, NODES, Facts, Unread

from tests.unit.cli.why.clusters import GPU, NIC, base, gpus, of_node_a, with_condition


def explained(facts: Facts, device: str = "gpu-1") -> Explanation:
    return of_device.explain(facts, facts.node_devices[0], device)


def state(facts: Facts, device: str = "gpu-1") -> tuple[str, bool, tuple[str, ...]]:
    found = explained(facts, device)
    return found.state, found.is_stopped, tuple(each.code for each in found.findings)


def with_device(facts: Facts, **changes: Any) -> Facts:
    """gpu-1 of node-a."""

    def change(found: NodeDevice) -> NodeDevice:
        each = tuple(replace(one, **changes) if one.id == "gpu-1" else one for one in found.devices)
        return replace(found, devices=each)

    return of_node_a(facts, change)


def test_one_device() -> None:
    found = explained(base())
    assert (found.subject, found.notes) == (f"device gpu-1 of {GPU} on node node-a", ("Healthy for 4 min.",))
    assert state(base()) == ("is free.", False, ())
    assert state(base(), "x") == ("is not listed: long lists omit healthy, free devices.", False, ())


def test_one_device_that_is_broken() -> None:
    facts = with_device(base(), health="", since="", message="it is odd", attributes={"b": "2", "a": "1"})
    found = explained(facts)
    assert found.notes == ("it is odd", "Its health is not known.", "a 1, b 2")
    assert state(facts) == ("is not in use, and is not free.", True, ("DevicesBroken",))
    remedy = "Read the log of its device plugin, and repair or replace the device"
    fields = {"device": "gpu-1", "device_options": "--device all", "device_remedy": remedy}
    assert found.findings[0].obstacles == (Obstacle("DevicesBroken", "node-a", GPU, "gpu-1 (unhealthy)", "", fields),)
    old = explained(with_condition("WatchesCurrent", "False", "x")(facts))
    assert old.findings[0].obstacles[0].as_of == "4 min ago"
    # of a Node that may not be read nothing is known, and nothing changes
    unread = replace(facts, nodes=(), unread=(Unread(NODES, "no"),))
    assert (state(unread), explained(unread).unread) == (state(facts), unread.unread)


@pytest.mark.parametrize(
    ("changes", "more", "code", "detail"),
    [
        ({"health": "Unhealthy", "reason": "Xid79"}, {}, "DevicesBroken", "(Xid79 for 4 min)"),
        ({"presence": "Missing", "since": ""}, {}, "DevicesBroken", "(NotListed)"),
        ({"health": "Unhealthy", "reason": "InOtherUse", "message": "vfio"}, {}, "DevicesInOtherUse", "(vfio)"),
        ({}, {"cordons": (Cordon("gpu-1", "ecc", "alice"),)}, "DevicesCordoned", "by alice: ecc"),
        ({}, {"cordons": (Cordon("*", "ecc"), Cordon("gpu-1", "mine", "bob"))}, "DevicesCordoned", "by bob: mine"),
        ({"taints": (Taint("k", "v", "NoExecute"),)}, {}, "DevicesTainted", "k:NoExecute"),
    ],
)
def test_what_takes_one_device(changes: dict[str, Any], more: dict[str, Any], code: str, detail: str) -> None:
    facts = of_node_a(with_device(base(), **changes), lambda found: replace(found, **more))
    [found] = explained(facts).findings
    assert (found.code, found.obstacles[0].detail) == (code, f"gpu-1 {detail}")


@pytest.mark.parametrize(("free", "codes"), [(1, ()), (0, ("DevicesHeld",))])
def test_one_device_in_two_parts(free: int, codes: tuple[str, ...]) -> None:
    facts = with_device(base(), parts=PartCounts(2, 2, 2 - free, free))
    assert state(facts) == (f"has {free} of 2 parts free.", bool(codes), codes)


def of_one(facts: Facts, **more: Any) -> Facts:
    return replace(facts, name="node-a", node_devices=facts.node_devices[:1], **more)


def test_one_node() -> None:
    found = of_node.explain(of_one(base()))
    assert (found.subject, found.state, found.is_stopped) == ("node node-a", "has 1 resource; 0 are Ready.", False)
    assert found.notes == (f"{GPU}: 4 of 4 free.",)
    ready = of_node.explain(of_one(with_condition("Ready", "True", "x")(base())))
    assert ready.state == "has 1 resource; 1 is Ready."
    nothing = of_node.explain(replace(of_one(base()), node_devices=()))
    assert nothing.state == "has no devices: no plugin has registered there, or no agent runs."
    unseen = of_node.explain(of_one(base(), unread=(Unread(NODE_DEVICES, "no"),)))
    assert unseen.unread == (Unread(NODE_DEVICES, "no"),)
    assert unseen.state == "has devices that you may not see, if it has any."


def test_what_stops_one_node() -> None:
    def causes(facts: Facts) -> list[Obstacle]:
        found = of_node.explain(facts)
        assert found.is_stopped == bool(found.findings)
        assert all(each.context == {"system": "nodedevice-system"} for each in found.findings)
        assert all(each.of_nodes == 1 for each in found.findings)
        return [one for each in found.findings for one in each.obstacles]

    facts = of_one(base())
    [first, *others] = facts.nodes
    unready = Condition("Ready", "False", "r", "no network")
    tainted = replace(first, conditions={"Ready": unready}, taints=(Taint("k", "", "NoSchedule"),))
    assert causes(replace(facts, nodes=(tainted, *others), leases=())) == [
        Obstacle("NodeNotReady", "node-a", detail="no network"),
        Obstacle("NodeTaint", "node-a", "", "k:NoSchedule", "", {"taint": "k:NoSchedule"}),
        Obstacle("NoAgent", "node-a", detail="it has no Lease"),
    ]
    # of what only the Node counts, names that are of devices count alone
    counting = replace(first, allocatable={GPU: "4", "x.com/y": "1", "x.com/z": "0", "cpu": "8"})
    assert causes(replace(facts, nodes=(counting, *others))) == []
    stray = replace(first, allocatable={GPU: "4", NIC: "1"})
    assert causes(replace(facts, nodes=(stray, *others))) == [Obstacle("StrayCapacity", "node-a", NIC, "it shows 1")]
    unread = replace(facts, nodes=(), leases=(), unread=(Unread(NODES, "no"),))
    assert causes(unread) == [Obstacle("NoAgent", "node-a", detail="it has no Lease")]


def test_of_which_resources_a_device_is() -> None:
    other = replace(gpus("node-a"), resource="other", devices=(Device("d", "Healthy", "Present"),))
    cut = replace(other, resource="cut", devices=(), devices_omitted=3)
    facts = replace(base(), node_devices=(gpus("node-a"), other, cut))
    assert of_device.resources_of(facts, "gpu-1") == [gpus("node-a")]
    assert of_device.resources_of(facts, "d") == [other]
    assert of_device.resources_of(facts, "x") == [cut]
