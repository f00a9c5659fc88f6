"""What a device was that its plugin lists no more: that counts for as long as a pod has it, or it is cordoned."""

from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.identity import Identity

from tests.unit.node_agent.devicemanager.identity_scenario import free, offering, offers
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, calls, pod, published

A, B = Device("a", identity=("c1:1",)), Device("b", identity=("c1:1",))
SHARED_A, SHARED_B = (Device(name, identity=("c1:1",), is_shared=True) for name in "ab")
OTHER = Device("other", identity=("c1:7",))


def test_what_a_pod_has_alone_it_has_alone_when_it_is_gone_as_well() -> None:
    """However the configuration lists it meanwhile."""
    scenario = offering(A).run(pod("p", gpu=1))
    scenario.lists([SHARED_A])
    scenario.lists([])
    scenario.lists([OTHER])
    offers(scenario, NIC, SHARED_B)
    assert free(scenario) == ["other"]
    scenario.gone("p")
    assert free(scenario) == ["other", "b"]


def test_what_was_shared_is_shared_when_it_is_gone() -> None:
    scenario = offering(SHARED_A).run(pod("p", gpu=1))
    scenario.lists([])
    offers(scenario, NIC, SHARED_B)
    assert free(scenario) == ["b"]


def test_one_that_was_cordoned_alone_is_not_shared_elsewhere() -> None:
    scenario = offering(A)
    scenario.cordon(GPU, ["a"])
    for _ in range(2):
        scenario.lists([])
    offers(scenario, NIC, SHARED_B)
    assert free(scenario) == []


def test_a_plugin_of_somebody_else_that_lists_an_id_of_before_lists_its_own_device() -> None:
    """Nothing says any more what it is, so it is no other one."""
    scenario = offering(B, name=NIC).run(pod("q", nic=1))
    scenario.lists([], NIC, 2)
    offers(scenario, GPU, A)
    assert free(scenario) == []
    scenario.plugin(["a"], GPU, 7)
    assert free(scenario) == ["a"]


class TestLostCheckpoint:
    """What pods hold is read from the API, while plugins have listed already."""

    def test_a_device_that_is_held_under_another_name_is_given_to_nobody(self) -> None:
        before = offering(B, name=NIC).run(pod("q", nic=1))
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
    scenario = offering(Device("serial", identity=("c188:0",)))
    (call,) = calls(scenario.see(pod("p", gpu=1)))
    scenario.lists([Device("port", identity=("c188:0",), aliases=("serial",))])
    scenario.answer(call)
    assert scenario.held() == {"p/main": ("serial",)}
    assert (free(scenario), scenario.snapshot().total) == ([], 1)
