"""Devices as units, and what is said of one device and of one node: each number and word."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from kubectl_nodedevice.cluster import Allocation, Condition, Cordon, Device, HeldParts, NodeDevice, PartCounts, Taint
from kubectl_nodedevice.devices import holders_of
from kubectl_nodedevice.why import device as of_device
from kubectl_nodedevice.why import nodes as of_node
from kubectl_nodedevice.why.explanation import Explanation
from kubectl_nodedevice.why.facts import NODE_DEVICES, NODES, Facts, Unread
from kubectl_nodedevice.why.links import devices
from kubectl_nodedevice.why.links.devices import Unit, Wanted

from tests.unit.cli.why.clusters import GPU, NOW, OLD, base, gpus, of_node_a, with_condition


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
    [found] = devices.obstacles("n", Wanted(GPU, 1, 1), few, "1 h ago")
    assert (found.node, found.resource, found.detail, found.as_of) == ("n", GPU, "a, c (x), b (y)", "1 h ago")
    assert found.fields == {"device": "a", "device_options": "--device all"}
    [found] = devices.obstacles("n", Wanted(GPU, 1, 1), [broken(name, "(x)") for name in "abc"])
    assert found.detail == "all 3 (x)"
    [found] = devices.obstacles("n", Wanted(GPU, 1, 1), [broken(name, "(x)") for name in "ab"])
    assert found.detail == "a, b (x)"


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
    assert state(facts) == ("is held by nobody, and not given out.", True, ("DevicesBroken",))
    assert [each.detail for each in found.findings[0].obstacles] == ["gpu-1 (unhealthy)"]
    assert (
        explained(with_condition("WatchesCurrent", "False", "x")(facts)).findings[0].obstacles[0].as_of == "4 min ago"
    )
    # of a Node that may not be read nothing is known, and nothing changes
    assert state(replace(facts, nodes=(), unread=(Unread(NODES, "no"),))) == state(facts)


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
    assert unseen.state == "has devices that you may not see, if it has any."


def test_numbers_of_one_node() -> None:
    facts = with_device(base(), health="Unhealthy")
    held = of_node_a(
        facts, lambda found: replace(found, allocated=1, releasing=1, available=0, cordons=(Cordon("gpu-0"),))
    )
    assert of_node.explain(of_one(held)).notes == (f"{GPU}: 0 of 4 free, 2 held, gpu-0 cordoned, gpu-1 broken.",)
    other = with_device(base(), health="Unhealthy", reason="InOtherUse", taints=(Taint("k", "", "NoSchedule"),))
    assert of_node.explain(of_one(other)).notes == (f"{GPU}: 4 of 4 free, gpu-1 in other use, gpu-1 tainted.",)
