"""A physical device is used in one way at a time, whatever plugins list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources import availability, physical_devices, same_devices
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_api.names import Reason
from nodedevice_api.parts import part_id

from tests.unit.node_agent.devicemanager.identity_scenario import device, free, offering, offers
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, SAME, Scenario, calls, held_by, pod, published

# the second resource of a scenario stands for units of the first one's GPUs
UNITS = NIC
A, B = Device("a", parent="a"), Device("b", parent="b")


def in_parts(*parents: str, count: int = 4, size: str = "") -> ListedDevices:
    found = (Device(part_id(parent, number, "-"), parent=parent) for parent in parents for number in range(count))
    return accept(
        found, part_rules=SAME, parents={parent: Device(parent, part_size=size) for parent in parents if size}
    )


def shared(scenario: Scenario, *parents: str) -> list[Effect]:
    return scenario.plugin(in_parts(*parents), UNITS, 2)


def available(scenario: Scenario) -> dict[str, int]:
    return {d.id: d.parts.available for d in scenario.snapshot().devices if d.parts is not None}


def test_units_of_a_gpu_that_a_pod_holds_whole_are_there_when_it_ends() -> None:
    scenario = Scenario.with_plugin([A, B]).run(pod("p", gpu=1))
    # the configuration has changed: the plugin lists one GPU whole no more, and the same one in units
    (held,) = scenario.held()["p/main"]
    scenario.lists([])
    shared(scenario, "a", "b")
    seen = scenario.snapshot(UNITS)
    assert (seen.total, seen.healthy, seen.available) == (8, 4, 4)
    used, other = sorted(seen.devices, key=lambda device: device.healthy)
    assert (used.id, used.healthy, used.reason) == (held, False, Reason.IN_OTHER_USE)
    assert ({used.id, other.id}, other.healthy, other.reason) == ({"a", "b"}, True, "")
    assert (GPU in used.message, f"{GPU} in parts" in used.message) == (True, False)
    scenario.run(pod("q", nic=3))
    assert scenario.see(pod("r", nic=3)) == [Publish(UNITS)]
    effects = scenario.gone("p")
    assert published(effects) >= {GPU, UNITS}
    (call,) = calls(effects)
    assert {device_id.partition("-")[0] for device_id in call.device_ids} == {held}
    assert scenario.snapshot(UNITS).healthy == 8


def test_the_same_resource_changes_from_whole_to_shares() -> None:
    scenario = Scenario.with_plugin([A]).run(pod("p", gpu=1))
    scenario.lists(in_parts("a"))
    assert scenario.snapshot().available == 0
    assert not calls(scenario.see(pod("q", gpu=1)))
    assert calls(scenario.gone("p"))


def test_parts_of_another_size_are_there_when_those_of_the_old_one_are_free() -> None:
    scenario = Scenario.with_plugin(in_parts("a", "b", size="1Gi")).run(pod("p", gpu=3))
    (held,) = {device_id[0] for device_id in scenario.held()["p/main"]}
    again = scenario.restarted()
    again.see(pod("p", gpu=3))
    again.plugin(in_parts("a", "b", count=2, size="2Gi"))
    shown = {device.id: device for device in again.snapshot().devices}
    assert available(again)[held] == 0
    assert shown[held].reason == Reason.IN_OTHER_USE
    assert f"{GPU} in parts of 1Gi" in shown[held].message
    again.run(pod("q", gpu=2))
    assert {device_id[0] for device_id in again.held()["q/main"]} == {"a", "b"} - {held}
    # the same after one more restart, and with the old size those are free that are
    back = again.restarted()
    back.see(pod("p", gpu=3), pod("q", gpu=2))
    back.plugin(in_parts("a", "b", size="1Gi"))
    assert available(back) == {held: 1, ({"a", "b"} - {held}).pop(): 0}
    back.gone("q")
    assert back.snapshot().available == 5


def test_after_a_restart_a_held_device_counts_by_its_id() -> None:
    scenario = Scenario.with_plugin([A]).run(pod("p", gpu=1)).restarted()
    scenario.see(pod("p", gpu=1))
    shared(scenario, "a")
    assert scenario.snapshot(UNITS).available == 0
    back = Scenario.with_plugin([B])
    shared(back, "a")
    back.run(pod("p", nic=1))
    again = back.restarted()
    again.see(pod("p", nic=1))
    again.plugin([A, B])
    assert again.snapshot().available == 1


def test_so_it_does_where_its_plugin_is_not_known_yet() -> None:
    """As in the checkpoint of an agent that did not note whose a resource is."""
    scenario = Scenario(Checkpoint((held_by("p", "a-0"),)))
    scenario.plugin([A], NIC, 2)
    assert scenario.snapshot(NIC).available == 0


def test_of_two_plugins_that_list_a_gpu_the_first_one_has_it() -> None:
    scenario = Scenario.with_plugin([A, B])
    shared(scenario, "a")
    assert (scenario.snapshot().available, scenario.snapshot(UNITS).available) == (2, 0)
    assert published(scenario.lists([B])) == {GPU, UNITS}
    assert (scenario.snapshot().available, scenario.snapshot(UNITS).available) == (1, 4)
    # it stays where it is
    scenario.lists([A, B])
    assert (scenario.snapshot().available, scenario.snapshot(UNITS).available) == (1, 4)


def test_a_whole_device_that_is_used_as_instances_says_so() -> None:
    scenario = Scenario.with_plugin([Device("m1", parent="a")])
    scenario.plugin([A], NIC, 2)
    (view,) = scenario.snapshot(NIC).devices
    assert view.message.startswith("a is used as instances: it can be allocated here when no pod uses it so")


def test_a_held_device_without_a_physical_one_is_no_use_of_what_has_its_name() -> None:
    scenario = Scenario.with_plugin([Device("a"), Device("m", parent="x")]).run(pod("p", gpu=1))
    assert scenario.held() == {"p/main": ("a",)}
    shared(scenario, "a")
    assert scenario.snapshot(UNITS).available == 4


def test_an_allocation_in_flight_does_not_take_what_another_use_has_meanwhile() -> None:
    scenario = Scenario.with_plugin([A])
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    scenario.lists([])
    shared(scenario, "a")
    scenario.run(pod("q", nic=1))
    scenario.lists([A])
    scenario.answer(call)
    assert scenario.held() == {}
    assert scenario.held(UNITS)["q/main"]


def test_instances_of_one_gpu_are_of_several_resources() -> None:
    scenario = Scenario.with_plugin([Device("m1", parent="a")])
    shared(scenario, "a")
    assert scenario.snapshot(UNITS).devices[0].message.startswith("a is used as instances: ")
    scenario.plugin([Device("m2", parent="a")], NIC, 2)
    scenario.run(pod("p", gpu=1, nic=1))
    assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("m1",)}, {"p/main": ("m2",)})


@pytest.mark.kubelet("scenario 53")
def test_plugins_that_name_no_physical_devices_share_ids_as_ever() -> None:
    scenario = Scenario.with_plugin(["a", "a-1"], ["a", "a-1"]).run(pod("p", gpu=2, nic=2))
    assert scenario.held() == scenario.held(NIC) == {"p/main": ("a", "a-1")}


def test_an_instance_that_is_destroyed_while_a_pod_holds_it_still_has_its_gpu() -> None:
    scenario = Scenario.with_plugin([Device("MIG-1", parent="a"), B]).run(pod("p", gpu=2))
    scenario.lists([B])
    shared(scenario, "a")
    assert scenario.snapshot(UNITS).available == 0
    # no instance is held back because of another one, listed or not
    scenario.lists([Device("MIG-3", parent="a"), B])
    assert scenario.snapshot().available == 1
    scenario.lists([B])
    assert scenario.snapshot(UNITS).available == 0
    scenario.gone("p")
    assert scenario.snapshot(UNITS).available == 4


class TestTooManyToCompare:
    """What a physical device is used for is decided again at each change: of some thousand devices."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(physical_devices, "MOST_LINKED", 6)
        monkeypatch.setattr(same_devices, "MOST_KINDS", 3)

    def wholes(self, letter: str, count: int) -> list[Device]:
        return [Device(f"{letter}{i}", parent=f"{letter}{i}") for i in range(count)]

    def test_of_a_resource_that_exceeds_it_nothing_is_given_out(self) -> None:
        scenario = Scenario()
        scenario.plugin(self.wholes("d", 4), "a.example/b")
        scenario.plugin(self.wholes("e", 3), "a.example/c", 2)
        scenario.plugin(self.wholes("f", 6), "other.example/c", 3)
        scenario.plugin([f"g{i}" for i in range(9)], "a.example/d", 4)
        scenario.plugin(self.wholes("h", 1), "a.example/e", 5)
        available = {"a.example/b": 4, "a.example/c": 0, "a.example/d": 9, "a.example/e": 0, "other.example/c": 6}
        assert {name: scenario.snapshot(name).available for name in scenario.manager.resources} == available
        seen = scenario.snapshot("a.example/c")
        assert "the plugins of a.example name the physical devices of more than 6" in seen.id_error
        assert {view.reason for view in seen.devices} == {"InOtherUse"}
        # one that its plugin reports unhealthy is that
        scenario.lists([Device("e0", False, parent="e0"), *self.wholes("e", 3)[1:]], "a.example/c", 2)
        reasons = {view.id: view.reason for view in scenario.snapshot("a.example/c").devices}
        assert reasons == {"e0": "ReportedUnhealthy", "e1": "InOtherUse", "e2": "InOtherUse"}
        scenario.lists(self.wholes("d", 1), "a.example/b")
        seen = scenario.snapshot("a.example/c")
        assert (seen.available, seen.id_error) == (2, "")

    def test_a_pod_waits_and_who_holds_some_keeps_them(self) -> None:
        scenario = Scenario.with_plugin(self.wholes("d", 1)).run(pod("p", gpu=1))
        scenario.lists(self.wholes("d", 7))
        scenario.run(pod("q", gpu=1))
        assert (scenario.held(), scenario.reasons()) == ({"p/main": ("d0",)}, {"q": "NotEnoughDevices"})
        assert availability.allocatable(scenario.manager.resources[GPU]) == ("d0",)
        scenario.answer_all(scenario.lists(self.wholes("d", 2)))
        assert scenario.held() == {"p/main": ("d0",), "q/main": ("d1",)}

    def test_shared_ones_that_are_alike_count_once(self) -> None:
        scenario = offering(*(device(f"s{i}", "c1:3", shared=True) for i in range(9)))
        alone = [device(f"a{i}", f"c1:{i}") for i in range(3)]
        offers(scenario, NIC, *alone)
        assert (scenario.snapshot().available, scenario.snapshot(NIC).available) == (9, 0)
        assert "may be one and the same" in scenario.snapshot(NIC).id_error
        # as many as there may be
        scenario.lists(alone[:2], NIC, 2)
        assert scenario.snapshot(NIC).available == 2

    def test_what_is_given_out_nowhere_keeps_nobody_from_the_same_device(self) -> None:
        scenario = offering(device("s", "c1:0", shared=True))
        offers(scenario, NIC, *(device(f"a{i}", f"c1:{i}") for i in range(3)))
        assert free(scenario) == ["s"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3), st.booleans()), max_size=12))
def test_devices_of_one_domain_are_held_back_as_if_there_were_no_other(lists: list[tuple[str, int, bool]]) -> None:
    """Only the domain in which something has changed is examined."""
    together, alone = Scenario(), {domain: Scenario() for domain in "abc"}
    for number, (domain, count, is_other) in enumerate(lists):
        devices = [Device(f"p{i}-{number % 2}", parent=f"p{i}") for i in range(count)]
        devices += [Device("p0", parent="p0")] if count > 1 else []
        name, endpoint = f"{domain}.example/{'other' if is_other else domain}", "abc".index(domain) + 1 + 10 * is_other
        for scenario in (together, alone[domain]):
            if name not in scenario.manager.resources:
                scenario.connect(name, endpoint)
            scenario.lists(devices, name, endpoint)
        found = {name: {**each.use.held_back} for s in alone.values() for name, each in s.manager.resources.items()}
        assert {name: {**each.use.held_back} for name, each in together.manager.resources.items()} == found
