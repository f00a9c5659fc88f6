"""Devices as units, and what is said of one device and of one node: each number and word."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Allocation, Condition, Cordon, Device, HeldParts, NodeDevice, PartCounts, Taint
from kubectl_nodedevice.devices import holders_of
from kubectl_nodedevice.why import device as of_device
from kubectl_nodedevice.why import nodes as of_node
from kubectl_nodedevice.why.explanation import Explanation, Obstacle
from kubectl_nodedevice.why.facts import NODE_DEVICES, NODES, Facts, Unread
from kubectl_nodedevice.why.links import devices
from kubectl_nodedevice.why.links.devices import Unit, Wanted
from nodedevice_kube.planner import Need

from tests.unit.cli.why.clusters import GPU, NIC, NOW, OLD, SAME, base, gpus, of_node_a, with_condition


def unit(found: Device, *, is_away: bool = False, **more: Any) -> Unit:
    [one] = devices.units_of(replace(gpus("node-a"), total=1, devices=(found,), **more), NOW, is_away=is_away)
    return one


def words(**more: str) -> Mapping[str, str]:
    """Of a unit that nothing takes, but for these."""
    usual = {"DevicesCordoned": "0 parts", "DevicesBroken": "(unhealthy)", "DevicesHeld": "", "DevicesTainted": ""}
    return {**usual, **more}


def taken(cordoned: int = 0, broken: int = 0, held: int = 0, tainted: int = 0) -> Mapping[str, int]:
    return {"DevicesCordoned": cordoned, "DevicesBroken": broken, "DevicesHeld": held, "DevicesTainted": tainted}


WELL = Device("d", "Healthy", "Present")
HELD = Allocation("team", "a", "u", "main", device_ids=("d",))


def test_a_device_that_is_free() -> None:
    assert unit(WELL) == Unit("d", 1, 1, taken(), words())
    # it has no parts that could be cordoned
    assert unit(WELL, cordons=(Cordon("d::1"),)) == unit(WELL)


def test_a_device_that_is_held() -> None:
    assert unit(WELL, allocations=(HELD,)) == Unit("d", 1, 0, taken(held=1), words(DevicesHeld="by team/a"))
    broken = unit(replace(WELL, health="Unhealthy"), allocations=(HELD,))
    assert broken == Unit("d", 1, 0, taken(broken=1, held=1), words(DevicesHeld="by team/a"))


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (Device("d", "Unhealthy", reason="Xid79", message="m", since=OLD), "(Xid79 for 4 min)"),
        (Device("d", "Unhealthy", reason="Xid79"), "(Xid79)"),
        (Device("d", "Unhealthy"), "(unhealthy)"),
        (Device("d", "Healthy", "Missing"), "(NotListed)"),
        (Device("d", "Healthy", "Missing", reason="Pulled"), "(Pulled)"),
    ],
)
def test_a_device_that_is_broken(found: Device, why: str) -> None:
    assert unit(found) == Unit("d", 1, 0, taken(broken=1), words(DevicesBroken=why))


@pytest.mark.parametrize(("message", "why"), [("vfio, by alice", "(vfio, by alice)"), ("", "(InOtherUse)")])
def test_a_device_in_other_use(message: str, why: str) -> None:
    found = unit(Device("d", "Unhealthy", reason="InOtherUse", message=message))
    numbers = {"DevicesCordoned": 0, "DevicesInOtherUse": 1, "DevicesHeld": 0, "DevicesTainted": 0}
    said = {"DevicesCordoned": "0 parts", "DevicesInOtherUse": why, "DevicesHeld": "", "DevicesTainted": ""}
    assert found == Unit("d", 1, 0, numbers, said)


@pytest.mark.parametrize(
    ("cordon", "why"),
    [
        (Cordon("d", "ecc", "alice"), "by alice: ecc"),
        (Cordon("d", "", "alice"), "by alice"),
        (Cordon("all", "ecc"), "ecc"),
        (Cordon("*"), ""),
    ],
)
def test_a_device_that_is_cordoned(cordon: Cordon, why: str) -> None:
    expected = Unit("d", 1, 0, taken(cordoned=1), words(DevicesCordoned=why), cordon)
    assert unit(WELL, cordons=(cordon,)) == expected
    assert unit(WELL, remembered_cordons=(Cordon("e"), cordon)) == expected
    # one of its own is named before that of all
    own = Cordon("d", "mine", "bob")
    assert unit(WELL, cordons=(Cordon("*", "ecc"), own)).cordon == own


def test_taints() -> None:
    soft, hard = Taint("s", "", "PreferNoSchedule"), Taint("k", "v", "NoExecute")
    assert unit(replace(WELL, taints=(soft,))).taken == taken()
    found = unit(replace(WELL, taints=(soft, hard)))
    assert found == Unit("d", 1, 0, taken(tainted=1), words(DevicesTainted="s:PreferNoSchedule, k:NoExecute"))


def test_a_device_in_parts() -> None:
    held = replace(HELD, device_ids=(), parts=(HeldParts("d", 2),))
    split = replace(WELL, parts=PartCounts(8, 7, 2, 4))
    cordons = (Cordon("d::1"), Cordon("x::1"))
    found = unit(split, allocations=(held,), cordons=cordons)
    said = words(DevicesHeld="by team/a", DevicesCordoned="1 parts")
    assert found == Unit("d", 8, 4, taken(1, 1, 2), said)
    # of a plugin that is away each part counts as unhealthy, and is not broken
    away = unit(replace(split, health="Unhealthy", parts=PartCounts(8, 0, 2, 0)), is_away=True, cordons=cordons)
    assert (away.free, away.taken) == (6, taken(1, 0, 2))
    gone = unit(replace(split, health="Unhealthy", reason="Xid79", parts=PartCounts(8, 0, 2, 0)), is_away=True)
    assert (gone.free, gone.taken) == (0, taken(0, 8, 2))


def test_a_list_that_is_cut() -> None:
    cut = replace(gpus("n"), total=9, healthy=6, cordoned=2, allocated=3, releasing=1, available=4, devices_omitted=5)
    numbers = {"DevicesCordoned": 2, "DevicesBroken": 3, "DevicesHeld": 4}
    said = {"DevicesCordoned": "2 of 9 cordoned", "DevicesBroken": "3 of 9 broken", "DevicesHeld": "4 of 9 held"}
    assert devices.units_of(cut, NOW) == (Unit("", 9, 4, numbers, said),)
    assert devices.units_of(replace(cut, devices_omitted=0), NOW) == (Unit("", 9, 4, numbers, said),)
    numbers, said = {**numbers, "DevicesBroken": 0}, {**said, "DevicesBroken": "0 of 9 broken"}
    assert devices.units_of(cut, NOW, is_away=True) == (Unit("", 9, 3, numbers, said),)
    [full] = devices.units_of(replace(cut, allocated=9), NOW, is_away=True)
    assert full.free == 0
    [none] = devices.units_of(replace(cut, total=None, healthy=0, cordoned=0, allocated=0, releasing=0), NOW)
    assert none.total == 0


def test_devices_for_the_same_reason_are_named_together() -> None:
    def broken(name: str, why: str) -> Unit:
        return Unit(name, 1, 0, {devices.BROKEN: 1}, {devices.BROKEN: why})

    few = [broken("a", "(x)"), broken("b", "(y)"), broken("c", "(x)")]
    [found] = devices.obstacles("n", Wanted(GPU), few, "1 h ago")
    assert (found.node, found.resource, found.detail, found.as_of) == ("n", GPU, "a, c (x), b (y)", "1 h ago")
    assert found.fields == {"device": "a", "device_options": "--device all"}
    [found] = devices.obstacles("n", Wanted(GPU), [broken(name, "(x)") for name in "abc"])
    assert found.detail == "all 3 (x)"
    [found] = devices.obstacles("n", Wanted(GPU), [broken(name, "(x)") for name in "ab"])
    assert found.detail == "a, b (x)"


def test_parts_that_are_free_on_no_device_together() -> None:
    """Named is what leaves no device whole; of holders that they share each."""

    def split(name: str, total: int, free: int, taker: str = devices.HELD) -> Unit:
        return Unit(name, total, free, {taker: total - free}, {taker: "by them"})

    def obstacles(count: int, *units: Unit) -> list[Obstacle]:
        return list(devices.obstacles("n", Wanted(GPU, (Need(count),), SAME), units, "now"))

    def few(detail: str, most: str) -> Obstacle:
        fields = {"problem": f"No device has {most} of {GPU} free"}
        return Obstacle("TooFewOnOneDevice", "n", GPU, detail, "now", fields)

    shared = [split("a", 4, 1), split("b", 8, 3), split("c", 8, 2)]
    assert obstacles(6, *shared) == [few("6 are free together, at most 3 of 8 on one, b", "6")]
    assert obstacles(9, *shared)[0] == few("6 are free together, at most 3 of 8 on one, b", "9")
    assert obstacles(20, *shared)[0] == few("6 are free together, at most 3 of 8 on one, b", "20")
    assert [each.code for each in obstacles(7, *shared)] == ["DevicesHeld"]
    assert [each.code for each in obstacles(4, split("a", 4, 2, devices.BROKEN), split("b", 4, 2, devices.BROKEN))] == [
        "DevicesBroken"
    ]
    # nothing is known to take what is not free
    unknown = [Unit("a", 4, 2), Unit("b", 4, 2)]
    assert obstacles(4, *unknown) == [few("4 are free together, at most 2 of 4 on one, a", "4")]


def test_too_few_together() -> None:
    wanted, fields = Wanted(GPU, (Need(3),)), {"count": "3"}
    too_few = Obstacle("TooFewTogether", "n", GPU, "it has 2", "now", fields)
    broken = [Unit(name, 1, 0, {devices.BROKEN: 1}, {devices.BROKEN: "(x)"}) for name in "ab"]
    assert devices.obstacles("n", wanted, [Unit("a", 1, 1), broken[1]], "now") == (too_few,)
    also = Obstacle("DevicesBroken", "n", GPU, "a, b (x)", "now", {"device": "a", "device_options": "--device all"})
    assert devices.obstacles("n", wanted, broken, "now") == (too_few, also)


def test_only_together_they_take_too_many() -> None:
    units = [Unit("a", 1, 0, {devices.BROKEN: 1}), Unit("", 1, 0, {devices.HELD: 1}), Unit("c", 1, 1)]
    cordoned = Unit("d", 1, 0, {devices.CORDONED: 1}, {}, Cordon("d x", by="bob"))
    found = devices.obstacles("n", Wanted(GPU, (Need(2),)), [*units, cordoned])
    assert [(each.code, each.detail, dict(each.fields)) for each in found] == [
        ("DevicesCordoned", "d", {"device": "d", "device_options": "--device 'd x' --take-over", "cordoned_by": "bob"}),
        ("DevicesBroken", "a", {"device": "a", "device_options": "--device all"}),
        ("DevicesHeld", "", {"device": "", "device_options": "--device all"}),
    ]


# -- of one device ------------------------------------------------------------------------------------------------------------


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
    assert found.subject == f"device gpu-1 of {GPU} on node node-a"
    assert found.notes == ("Healthy for 4 min.",)
    assert state(base()) == ("is free.", False, ())
    assert state(base(), "x") == ("is not listed, as healthy and free devices of long lists are not.", False, ())


def test_one_device_that_is_broken() -> None:
    facts = with_device(base(), health="", since="", message="it is odd", attributes={"b": "2", "a": "1"})
    found = explained(facts)
    assert found.notes == ("it is odd", "Its health is not known.", "a 1, b 2")
    assert state(facts) == ("is held by no pod, and is not free.", True, ("DevicesBroken",))
    remedy = "Read the log of its device plugin, and repair or replace the device"
    fields = {"device": "gpu-1", "device_options": "--device all", "device_remedy": remedy}
    assert found.findings[0].obstacles == (Obstacle("DevicesBroken", "node-a", GPU, "gpu-1 (unhealthy)", "", fields),)
    assert (
        explained(with_condition("WatchesCurrent", "False", "x")(facts)).findings[0].obstacles[0].as_of == "4 min ago"
    )
    # of a Node that may not be read nothing is known, and nothing changes
    unread = replace(facts, nodes=(), unread=(Unread(NODES, "no"),))
    assert (state(unread), explained(unread).unread) == (state(facts), unread.unread)


def test_one_device_that_is_free_and_not_given_out() -> None:
    facts = with_condition("Injectable", "False", "NoRuntime")(base())
    assert state(facts) == ("is free.", True, ("NotInjectable",))
    assert explained(facts).findings[0].of_nodes == 1
    # a Node that shows one is enough for one
    [first, *others] = base().nodes
    assert state(replace(base(), nodes=(replace(first, allocatable={GPU: "1"}), *others)))[2] == ()


def test_one_device_that_is_held() -> None:
    held = tuple(Allocation("team", name, name, "main", device_ids=("gpu-1",)) for name in ("b", "a", "b"))
    facts = of_node_a(base(), lambda found: replace(found, allocations=held))
    assert holders_of(facts.node_devices[0]).keys() == {"gpu-1"}
    assert state(facts) == ("is held by team/a, team/b.", True, ("DevicesHeld",))


@pytest.mark.parametrize(("free", "codes"), [(1, ()), (0, ("DevicesHeld",))])
def test_one_device_in_two_parts(free: int, codes: tuple[str, ...]) -> None:
    facts = with_device(base(), parts=PartCounts(2, 2, 2 - free, free))
    assert state(facts) == (f"has {free} of 2 parts free.", bool(codes), codes)


def test_what_is_offered_twice_is_a_note() -> None:
    def twice(status: str) -> Facts:
        new = {"OfferedTwice": Condition("OfferedTwice", status, message="two offer it")}
        return of_node_a(base(), lambda found: replace(found, conditions=new))

    assert explained(twice("True")).notes == ("Healthy for 4 min.", "two offer it")
    assert explained(twice("False")).notes == ("Healthy for 4 min.",)


# -- of one node --------------------------------------------------------------------------------------------------------------


def of_one(facts: Facts, **more: Any) -> Facts:
    return replace(facts, name="node-a", node_devices=facts.node_devices[:1], **more)


def test_one_node() -> None:
    found = of_node.explain(of_one(base()))
    assert (found.subject, found.state, found.is_stopped) == (
        "node node-a",
        "has 1 resource, of which 0 are Ready.",
        False,
    )
    assert found.notes == (f"{GPU}: 4 of 4 free.",)
    ready = of_node.explain(of_one(with_condition("Ready", "True", "x")(base())))
    assert ready.state == "has 1 resource, of which 1 is Ready."
    nothing = of_node.explain(replace(of_one(base()), node_devices=()))
    assert nothing.state == "has no devices: no plugin has registered there, or no agent runs."
    unseen = of_node.explain(of_one(base(), unread=(Unread(NODE_DEVICES, "no"),)))
    assert unseen.unread == (Unread(NODE_DEVICES, "no"),)
    assert unseen.state == "has devices that you may not see, if it has any."


def test_numbers_of_one_node() -> None:
    facts = with_device(base(), health="Unhealthy")
    held = of_node_a(
        facts, lambda found: replace(found, allocated=1, releasing=1, available=0, cordons=(Cordon("gpu-0"),))
    )
    assert of_node.explain(of_one(held)).notes == (f"{GPU}: 0 of 4 free, 2 held, gpu-0 cordoned, gpu-1 broken.",)
    other = with_device(base(), health="Unhealthy", reason="InOtherUse", taints=(Taint("k", "", "NoSchedule"),))
    assert of_node.explain(of_one(other)).notes == (f"{GPU}: 4 of 4 free, gpu-1 in other use, gpu-1 tainted.",)


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


def test_a_drivers_pool_on_one_node() -> None:
    driver = replace(gpus("node-a").agent, served_by="dra")

    def causes(reason: str) -> list[Obstacle]:
        new = Condition("Registered", "False" if reason else "True", reason, "one slice is missing")
        stale = Condition("WatchesCurrent", "False", since=OLD)
        held = Allocation("team", "a", "u", "main", device_ids=tuple(f"gpu-{at}" for at in range(4)))
        facts = of_node_a(
            base(),
            lambda found: replace(
                found,
                agent=driver,
                conditions={"Registered": new, "WatchesCurrent": stale},
                allocations=(held,),
                available=0,
            ),
        )
        return [one for each in of_node.explain(of_one(facts)).findings for one in each.obstacles]

    for reason in ("PoolIncomplete", "DevicesRefused"):
        assert causes(reason) == [Obstacle("PoolRefused", "node-a", GPU, "one slice is missing", "4 min ago")]
    fields = {"device": "gpu-0", "device_options": "--device all"}
    assert causes("ServedByDRA") == [Obstacle("DevicesHeld", "node-a", GPU, "all 4 by team/a", "4 min ago", fields)]


def test_of_which_resources_a_device_is() -> None:
    other = replace(gpus("node-a"), resource="other", devices=(WELL,))
    cut = replace(other, resource="cut", devices=(), devices_omitted=3)
    facts = replace(base(), node_devices=(gpus("node-a"), other, cut))
    assert of_device.resources_of(facts, "gpu-1") == [gpus("node-a")]
    assert of_device.resources_of(facts, "d") == [other]
    assert of_device.resources_of(facts, "x") == [cut]
