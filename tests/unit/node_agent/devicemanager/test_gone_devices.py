"""What a device was that its plugin lists no more: that counts for as long as a pod has it, or it is cordoned."""

from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.identity import Identity

from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, calls, pod, published

A, B = Device("a", identity=("c1:1",)), Device("b", identity=("c1:1",))
SHARED_A, SHARED_B = (Device(name, identity=("c1:1",), is_shared=True) for name in "ab")
OTHER = Device("other", identity=("c1:7",))


def offers(scenario: Scenario, name: str, *devices: Device) -> None:
    scenario.plugin(devices, name, {GPU: 1, NIC: 2}[name], PluginOptions(scope=f"{BUILT_IN}{name}"))


def free(scenario: Scenario) -> list[str]:
    return [i for _, resource in sorted(scenario.manager.resources.items()) for i in availability.free(resource)]


class TestHeldAlone:
    """A pod that has a device for itself has it so until its end, however the configuration lists it meanwhile."""

    def held(self) -> Scenario:
        scenario = Scenario()
        offers(scenario, GPU, A)
        return scenario.run(pod("p", gpu=1))

    def test_through_any_number_of_lists(self) -> None:
        scenario = self.held()
        scenario.lists([SHARED_A])
        scenario.lists([SHARED_A, OTHER])
        offers(scenario, NIC, SHARED_B)
        assert free(scenario) == ["other"]

    def test_when_it_is_gone_as_well(self) -> None:
        scenario = self.held()
        scenario.lists([SHARED_A])
        scenario.lists([])
        scenario.lists([OTHER])
        offers(scenario, NIC, SHARED_B)
        assert free(scenario) == ["other"]
        scenario.gone("p")
        assert free(scenario) == ["other", "b"]


def test_what_was_shared_is_shared_when_it_is_gone() -> None:
    scenario = Scenario()
    offers(scenario, GPU, SHARED_A)
    scenario.run(pod("p", gpu=1))
    scenario.lists([])
    offers(scenario, NIC, SHARED_B)
    assert free(scenario) == ["b"]


def test_one_that_was_cordoned_alone_is_not_shared_elsewhere() -> None:
    scenario = Scenario()
    offers(scenario, GPU, A)
    scenario.happens("table.cordoned", GPU, "object", {"a": Cordon()})
    for _ in range(2):
        scenario.lists([])
    offers(scenario, NIC, SHARED_B)
    assert free(scenario) == []


def test_a_number_that_has_passed_on_while_the_plugin_of_its_holder_is_away() -> None:
    scenario = Scenario()
    offers(scenario, GPU, Device("a", identity=("c188:0", "/usb/1:2:A/x")))
    scenario.run(pod("p", gpu=1))
    offers(scenario, NIC, Device("b", identity=("c188:0", "/usb/1:2:B/x")))
    assert free(scenario) == []
    scenario.disconnect()
    assert free(scenario) == ["b"]


def test_a_plugin_of_somebody_else_that_lists_an_id_of_before_lists_its_own_device() -> None:
    """Nothing says any more what it is, so it is no other one."""
    scenario = Scenario()
    offers(scenario, NIC, B)
    scenario.run(pod("q", nic=1))
    scenario.lists([], NIC, 2)
    offers(scenario, GPU, A)
    assert free(scenario) == []
    scenario.plugin(["a"], GPU, 7)
    assert free(scenario) == ["a"]


class TestLostCheckpoint:
    """What pods hold is read from the API, while plugins have listed already."""

    def test_a_device_that_is_held_under_another_name_is_given_to_nobody(self) -> None:
        before = Scenario()
        offers(before, NIC, B)
        before.run(pod("q", nic=1))
        scenario = Scenario(is_recovering=True)
        offers(scenario, GPU, A)
        scenario.see(pod("q", nic=1), pod("p", gpu=1))
        effects = scenario.happens("recovered", before.manager.checkpoint())
        assert calls(effects) == []
        assert (free(scenario), GPU in published(effects)) == ([], True)

    def test_of_a_resource_that_is_not_known_nothing_is_remembered(self) -> None:
        scenario = Scenario(Checkpoint(identities={GPU: {"a": Identity(("c1:1",))}}, scopes={GPU: BUILT_IN}))
        assert scenario.manager.resources == {}
        offers(scenario, NIC, B)
        assert free(scenario) == ["b"]


def test_one_that_is_being_allocated_keeps_its_id() -> None:
    scenario = Scenario()
    offers(scenario, GPU, Device("serial", identity=("c188:0",)))
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    scenario.lists([Device("port", identity=("c188:0",), aliases=("serial",))])
    scenario.answer(call)
    assert scenario.held() == {"p/main": ("serial",)}
    assert (free(scenario), scenario.snapshot().total) == ([], 1)


def test_whoever_shows_a_device_is_published_when_its_holder_changes() -> None:
    """Its NodeDevice names the pod."""
    scenario = Scenario()
    offers(scenario, GPU, A)
    offers(scenario, NIC, B)
    scenario.plugin(["x"], "example.com/unrelated", 7)
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    assert published(scenario.answer(call)) == {GPU, NIC}
    assert published(scenario.gone("p")) == {GPU, NIC}
