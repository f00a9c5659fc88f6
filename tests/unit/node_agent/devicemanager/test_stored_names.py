"""An ID that is held or cordoned never means another device: after a boot, after a replug, and for shares and parts."""

from itertools import permutations
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.allocation.responses_after_boot import after_boot
from nodedevice_agent.devicemanager.allocation.stored_responses import problem
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.effects import CallAllocate
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.stored_names import with_stored_ids
from nodedevice_api.names import Reason
from nodedevice_api.parts import Advertise, PartRules, Placement

from tests.unit.node_agent.devicemanager.identity_scenario import device, free, offering, offers, own
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, calls, pod, with_edits

STICKS = {
    "a serial": ("/port/1-1/x", "/usb/1:2:A/x"),
    "another serial": ("/port/1-2/x", "/usb/1:2:B/x"),
    "a repeated serial": ("/port/1-3/x", "/usb/1:2:R@1-3/x"),
    "no serial": ("/port/1-4/x", "/usb/1:2:@1-4/x"),
    "a card": ("/lasting/devices/pci/02.0/x",),
    "another card": ("/lasting/devices/pci/03.0/x",),
}
A, B, REPEATED, BARE, *_ = STICKS.values()


def tty(number: int, identity: tuple[str, ...], *, share: str = "", shared: bool = False) -> Device:
    """As it is listed by the kernel's name."""
    name = f"ttyUSB{number}"
    found = device(f"{name}{share}", *identity, f"c188:{number}", shared=shared)
    return replace(found, files=((f"/dev/{name}", f"c188:{number}"),))


def identity_of(scenario: Scenario, device_id: str) -> tuple[str, ...] | None:
    """What the ID means now, less its number; None where it is not listed."""
    found = scenario.manager.resources[GPU].devices.get(device_id)
    return None if found is None else found.identity[:-1]


def rebooted(scenario: Scenario) -> Scenario:
    return Scenario(with_edits(after_boot(scenario.manager.checkpoint(), lambda name: True)))


@pytest.mark.parametrize("way", ["boot", "restart", "replug"])
@pytest.mark.parametrize("order", [*permutations(range(3))])
@pytest.mark.parametrize("kinds", [[*STICKS][:3], [*STICKS][3:]])
def test_a_held_id_stays_with_its_device_whatever_the_kernel_numbers(
    way: str, order: tuple[int, ...], kinds: list[str]
) -> None:
    sticks = [STICKS[kind] for kind in kinds]
    scenario = offering(*(tty(number, stick) for number, stick in enumerate(sticks)))
    scenario.run(*(pod(f"p{number}", gpu=1) for number in range(2)))
    assert scenario.held() == {"p0/main": ("ttyUSB0",), "p1/main": ("ttyUSB1",)}
    if way == "replug":
        scenario.answer_all(scenario.lists([]))
    else:
        scenario = rebooted(scenario) if way == "boot" else scenario.restarted()
    now = [tty(number, sticks[index]) for number, index in enumerate(order)]
    if way == "replug":
        scenario.passes(60)
        scenario.answer_all(scenario.lists(now))
    else:
        offers(scenario, GPU, *now)
        scenario.see(*(pod(f"p{number}", gpu=1) for number in range(2)))
    scenario.passes(60)
    assert [identity_of(scenario, f"ttyUSB{number}") for number in range(2)] == sticks[:2]
    # the third is free, by whatever ID
    (third,) = free(scenario)
    assert identity_of(scenario, third) == sticks[2]
    scenario.run(pod("q", gpu=1))
    assert scenario.held()["q/main"] == (third,)


@pytest.mark.parametrize("other", [B, REPEATED, BARE, ("/lasting/devices/x",), ()], ids=str)
def test_another_stick_has_the_name_and_is_free_by_another_id(other: tuple[str, ...]) -> None:
    scenario = offering(tty(0, A)).run(pod("p", gpu=1))
    scenario.lists([tty(0, other)])
    scenario.passes(60)
    assert identity_of(scenario, "ttyUSB0") is None
    (held,) = scenario.manager.book.of_resource(GPU)
    assert "ttyUSB0 of example.com/gpu is not there" in problem(held, scenario.manager.resources[GPU])
    # a file of which only the number is known may be the pod's
    assert len(free(scenario)) == bool(other)
    scenario.run(pod("q", gpu=1))
    for uid in "pq":
        scenario.gone(uid)
    scenario.passes(60)
    assert free(scenario) == ["ttyUSB0"]


def test_the_plugin_is_called_for_the_device_by_its_own_id() -> None:
    scenario = offering(tty(0, A), tty(1, B)).run(pod("p", gpu=1))
    scenario.effects.clear()
    scenario.lists([tty(0, B), tty(1, A)])
    # the response names another file by now
    (call,) = [effect for effect in scenario.effects if isinstance(effect, CallAllocate)]
    assert call.device_ids == ("ttyUSB1",)
    scenario.passes(60)
    (call,) = calls(scenario.see(pod("q", gpu=1)))
    assert call.device_ids == ("ttyUSB0",)


def test_a_cordon_stays_with_its_device() -> None:
    """A broken stick that is cordoned by the kernel's name is not given out after a boot."""
    scenario = offering(tty(0, A), tty(1, B))
    scenario.cordon(GPU, ["ttyUSB0"])
    again = rebooted(scenario)
    offers(again, GPU, tty(0, B), tty(1, A))
    assert identity_of(again, "ttyUSB0") == A
    assert [identity_of(again, each) for each in free(again)] == [B]
    again.cordon(GPU, [])
    assert len(free(again)) == 2


def test_shares_stay_with_their_device() -> None:
    def shares(*sticks: tuple[str, ...]) -> list[Device]:
        return [tty(n, stick, share=f"::{i}", shared=True) for n, stick in enumerate(sticks) for i in range(2)]

    scenario = offering(*shares(A, B)).run(pod("p", gpu=1), pod("q", gpu=1))
    assert scenario.held() == {"p/main": ("ttyUSB0::0",), "q/main": ("ttyUSB0::1",)}
    again = rebooted(scenario)
    offers(again, GPU, *shares(B, A))
    assert identity_of(again, "ttyUSB0::0") == identity_of(again, "ttyUSB0::1") == A
    again.see(pod("p", gpu=1), pod("q", gpu=1))
    assert [identity_of(again, each) for each in free(again)] == [B, B]


def test_parts_stay_with_their_device() -> None:
    def parts(number: int, stick: tuple[str, ...]) -> list[Device]:
        name = f"ttyUSB{number}"
        return [Device(f"{name}::{i}", parent=name, identity=(*stick, "n"), is_shared=True) for i in range(2)]

    before = accept([*parts(0, A), *parts(1, B)], part_rules=PartRules())
    after = accept([*parts(0, B), *parts(1, A)], part_rules=PartRules())
    found = with_stored_ids(after, {"ttyUSB0::1": before.devices["ttyUSB0::1"].identity})
    assert found.devices["ttyUSB0::1"].identity[:2] == A
    assert found.devices["ttyUSB0::1"].listed_as == "ttyUSB1::1"
    assert len(found.devices) == 4
    assert {d.parent for d in found.devices.values() if d.identity[:2] == B} != {"ttyUSB0"}


@pytest.mark.parametrize("shared", [False, True])
def test_a_stick_without_a_serial_that_is_plugged_in_elsewhere_is_given_to_nobody_else(shared: bool) -> None:
    """Its plugin has seen it go, and another resource lists it first: it may be what the pod holds."""
    scenario = offering(tty(0, BARE)).run(pod("p", gpu=1))
    elsewhere = ("/port/2-1/x", "/usb/1:2:@2-1/x")
    scenario.lists([])
    offers(scenario, NIC, device("usb", *elsewhere, "c188:0", shared=shared))
    scenario.run(pod("q", nic=1))
    assert scenario.held(NIC) == {}
    scenario.lists([tty(0, elsewhere)])
    scenario.passes(60)
    assert free(scenario) == []
    assert identity_of(scenario, "ttyUSB0") is None
    # back in its port it is the pod's
    scenario.answer_all(scenario.lists([], NIC, 2))
    scenario.answer_all(scenario.lists([tty(0, BARE)]))
    scenario.passes(60)
    assert identity_of(scenario, "ttyUSB0") == BARE
    assert scenario.held() == {"p/main": ("ttyUSB0",)}


def test_a_serial_that_two_have_by_now_may_be_of_either() -> None:
    """The one that a pod holds was alone with it, and is in another port since."""
    scenario = offering(tty(0, ("/port/1-3/x", "/usb/1:2:R/x"))).run(pod("p", gpu=1))
    scenario.lists([])
    twins = [device(port, f"/port/{port}", f"/usb/1:2:R@{port}", f"c189:{port[-1]}") for port in ("2-1", "2-2")]
    offers(scenario, NIC, *twins, device("else", "/port/2-3", "/usb/1:2:Q", "c189:3"))
    assert free(scenario) == ["else"]


class TestUnconfirmed:
    """A device that its plugin cannot confirm is counted, and not allocated."""

    WHY = "ttyUSB0 is not confirmed: /sys/x cannot be read (Input/output error)"

    def doubted(self) -> Device:
        return Device("ttyUSB0", reason=Reason.DEVICE_UNCONFIRMED, message=self.WHY, identity=(*A, "c188:0"), files=())

    def why_it_waits(self, scenario: Scenario) -> str:
        """Why the one pod that waits does so."""
        (waiting,) = scenario.manager.pending(GPU)
        assert waiting.reason == Reason.DEVICE_UNCONFIRMED
        return waiting.message

    def test_another_free_one_is_preferred_and_a_pod_that_waits_is_told_why(self) -> None:
        scenario = offering(self.doubted(), tty(1, B))
        assert (scenario.snapshot().healthy, scenario.snapshot().available) == (2, 2)
        scenario.run(pod("p", gpu=1))
        assert scenario.held() == {"p/main": ("ttyUSB1",)}
        scenario.run(pod("q", gpu=1))
        assert self.WHY in self.why_it_waits(scenario)
        assert scenario.snapshot().available == 1
        scenario.answer_all(scenario.lists([tty(0, A), tty(1, B)]))
        assert scenario.held()["q/main"] == ("ttyUSB0",)

    def test_a_pod_that_holds_it_keeps_it_and_its_containers_wait(self) -> None:
        scenario = offering(tty(0, A))
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        scenario.answer(call, b"ttyUSB0")
        scenario.effects.clear()
        scenario.lists([self.doubted()])
        (held,) = scenario.manager.book.of_resource(GPU)
        resource = scenario.manager.resources[GPU]
        assert held.response is not None
        assert problem(held, resource) == self.WHY
        assert scenario.snapshot().allocated == 1
        assert not [effect for effect in scenario.effects if isinstance(effect, CallAllocate)]
        scenario.lists([tty(0, A)])
        assert self.WHY not in problem(held, resource)

    def test_a_choice_that_is_in_doubt_at_the_response_is_made_again(self) -> None:
        scenario = offering(tty(0, A), tty(1, B))
        (call,) = calls(scenario.see(pod("p", gpu=1)))
        scenario.lists([self.doubted(), tty(1, B)])
        scenario.answer_all(scenario.answer(call))
        assert scenario.held() == {"p/main": ("ttyUSB1",)}

    def test_it_takes_no_number_from_another_device(self) -> None:
        scenario = offering(self.doubted())
        offers(scenario, NIC, device("other", *B, "c188:0"))
        assert free(scenario) == ["other"]

    def test_a_file_that_is_no_device_of_its_own_is_not_allocated_either(self) -> None:
        """Such as /dev/kvm, which has no identity."""
        scenario = offering(Device("kvm::0", reason=Reason.DEVICE_UNCONFIRMED, message=self.WHY), Device("vhost::0"))
        assert free(scenario) == ["vhost::0"]
        assert self.why_it_waits(scenario.run(pod("p", gpu=1), pod("q", gpu=1)))

    def test_its_parts_are_counted_and_a_pod_that_no_other_device_fits_is_told_why(self) -> None:
        def parts(name: str, count: int, **more: Any) -> list[Device]:
            return [Device(f"{name}::{i}", parent=name, identity=(name,), is_shared=True, **more) for i in range(count)]

        scenario = Scenario()
        doubted = parts("A", 2, reason=Reason.DEVICE_UNCONFIRMED, message="A::0 is not confirmed")
        rules = PartRules(Placement.SAME_PARENT, advertise=Advertise.LARGEST)
        scenario.plugin(accept([*doubted, *parts("B", 1), *parts("C", 1)], part_rules=rules), options=own("generic"))
        assert scenario.snapshot().available == 4
        assert {d.id: d.parts.available for d in scenario.snapshot().devices if d.parts} == {"A": 2, "B": 1, "C": 1}
        assert "A::0 is not confirmed" in self.why_it_waits(scenario.run(pod("p", gpu=2)))

    def test_a_pod_that_waits_for_a_near_device_is_told_which_one_is_not_confirmed(self) -> None:
        """Of one free device on each of two nodes, and of two on the node of the one that is in doubt."""
        scenario = Scenario(topology=Topology(TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.CONTAINER, (0, 1)))
        near = [Device("A", numa_nodes=(0,), identity=("A",)), Device("B", numa_nodes=(1,), identity=("B",))]
        third = Device("C", numa_nodes=(0,), identity=("C",))
        offers(scenario, GPU, *near, replace(third, reason=Reason.DEVICE_UNCONFIRMED, message="C is not confirmed"))
        assert "C is not confirmed" in self.why_it_waits(scenario.run(pod("p", gpu=2)))
        scenario.answer_all(scenario.lists([*near, third]))
        assert scenario.held() == {"p/main": ("A", "C")}
