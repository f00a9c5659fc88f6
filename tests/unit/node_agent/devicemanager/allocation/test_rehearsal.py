"""Pods of several containers under a strict topology policy: what one container takes leaves enough near devices for the next."""

from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.devices import Device

from tests.unit.node_agent.devicemanager.allocation.test_topology import on
from tests.unit.node_agent.devicemanager.allocation.test_topology_admission import STRICT, TWO, machine
from tests.unit.node_agent.devicemanager.pods import GPU, app, init, pod, sidecar
from tests.unit.node_agent.devicemanager.scenario import WITH_PREFERENCES, Scenario, calls, ids, preferred_calls


def one_at_both_nodes(**more: Any) -> Scenario:
    """d0 is near to the first node, d1 and d2 are to the second one, and d3 is to both."""
    devices = [Device(f"d{index}", numa_nodes=near) for index, near in enumerate([(0,), (1,), (1,), (0, 1)])]
    return Scenario.with_plugin(devices, topology=Topology(TopologyPolicy.RESTRICTED, numa_nodes=TWO), **more)


@pytest.mark.parametrize("policy", STRICT)
@pytest.mark.parametrize(
    ("containers", "gpus", "held"),
    [
        pytest.param([app("a"), app("b", 2)], [0, 0, 1], "2 01", id="the small one leaves the node whole"),
        pytest.param([init("i"), app("a", 3)], [0, 1, 1, 1, 1], "1 123", id="init where the main one has room"),
        pytest.param([init("i"), app("a", 3)], [1, 1, 1], "0 012", id="init where the main one needs all"),
        pytest.param([sidecar("s"), init("i"), app("a", 2)], [0, 1, 1], "0 1 12", id="the sidecar takes the one"),
        pytest.param([app("a"), app("b"), app("c", 2)], [0, 0, 1, 1], "0 1 23", id="the first choice will do"),
    ],
)
def test_nodes_are_chosen_for_all_containers(
    policy: TopologyPolicy, containers: list[Container], gpus: list[int], held: str
) -> None:
    found = machine(policy, gpus).run(pod("p", *containers)).held()
    assert [found[f"p/{each.name}"] for each in containers] == [*map(ids, held.split())]


def test_devices_are_chosen_for_all_containers() -> None:
    """The one that both nodes have serves the main container, too, which does not fit the first node."""
    scenario = one_at_both_nodes().run(pod("p", init("i"), app("a", 3)))
    assert scenario.held() == {"p/i": ("d3",), "p/a": ("d1", "d2", "d3")}


def test_advice_that_leaves_too_few_is_followed_by_what_was_rehearsed() -> None:
    scenario = one_at_both_nodes(options=WITH_PREFERENCES)
    (query,) = preferred_calls(scenario.see(pod("p", init("i"), app("a", 3))))
    # as the kubelet asks: of all that are near to the first node
    assert (query.available, query.size) == (("d0", "d3"), 1)
    (first,) = calls(scenario.prefer(query, "d0"))
    effects = scenario.answer(first)
    assert preferred_calls(effects) == []
    scenario.answer_all(effects)
    assert scenario.held() == {"p/i": ("d3",), "p/a": ("d1", "d2", "d3")}


def test_what_was_rehearsed_may_be_gone() -> None:
    """b's devices were to be d0 and d1, and d1 breaks while a's are allocated: nothing is left for b on one node."""
    scenario = machine(TopologyPolicy.RESTRICTED, [0, 0, 1])
    (first,) = calls(scenario.see(pod("p", app("a"), app("b", 2))))
    scenario.lists([Device("d0", numa_nodes=(0,)), Device("d1", False, (0,)), Device("d2", numa_nodes=(1,))])
    assert calls(scenario.answer(first)) == []
    assert scenario.reasons() == {"p": "NotEnoughDevices"}
    assert scenario.manager.resources[GPU].use.reserved == {}
    scenario.answer_all(scenario.lists(on(0, 0, 1).values()))
    assert scenario.held() == {"p/a": ("d2",), "p/b": ("d0", "d1")}


def test_what_a_later_container_gets_is_decided_when_it_is_its_turn() -> None:
    """b's device was to be d1, beside a's, and another pod takes that while a's is allocated."""
    scenario = machine(TopologyPolicy.RESTRICTED, [0, 0, 1])
    (first,) = calls(scenario.see(pod("p", app("a"), app("b"))))
    scenario.run(pod("q", gpu=1))
    (second,) = calls(scenario.answer(first))
    assert (first.device_ids, second.container, second.device_ids) == (("d0",), "b", ("d2",))


EIGHT = tuple(range(8))


@pytest.mark.parametrize(("devices", "nodes"), [(16, TWO), (32, EIGHT), (12000, EIGHT)], ids=str)
def test_what_cannot_be_aligned_is_given_up_in_time(devices: int, nodes: tuple[int, ...]) -> None:
    """Every combination of choices would take for ever."""
    listed = list(on(*(index % len(nodes) for index in range(devices))).values())
    scenario = Scenario.with_plugin(listed, topology=Topology(TopologyPolicy.SINGLE_NUMA_NODE, numa_nodes=nodes))
    small = [app(f"c{n}") for n in range(4)]
    scenario.see(pod("p", *small, app("z", devices // len(nodes) + 1)))
    assert scenario.reasons() == {"p": "TopologyAffinity"}


def test_each_device_may_be_near_to_other_nodes_than_all_others() -> None:
    """A thousand such sets of nodes are not too many, and no pod fails for them."""
    devices = [Device(f"d{index}", numa_nodes=(0, 1000 + index)) for index in range(1500)]
    scenario = Scenario.with_plugin(devices, topology=Topology(TopologyPolicy.RESTRICTED, numa_nodes=TWO))
    scenario.run(pod("p", app("a"), app("b")), pod("q", app("a"), app("b"), app("c")))
    assert scenario.held() == {"p/a": ("d0",), "p/b": ("d1",)}
    assert scenario.reasons() == {"q": "TopologyAffinity"}


class TestAPodOfManyContainers:
    """Each is rehearsed, with whatever the ones before it leave: two hundred kept the agent from everybody else for seconds."""

    def pod_of(self, count: int) -> Pod:
        return pod("p", *(app(f"c{number}") for number in range(count)))

    def node(self, policy: TopologyPolicy, scope: TopologyScope = TopologyScope.CONTAINER) -> Scenario:
        listed = list(on(*(index % 2 for index in range(20000))).values())
        return Scenario.with_plugin(listed, topology=Topology(policy, scope, TWO))

    @pytest.mark.parametrize("scope", list(TopologyScope))
    def test_waits_for_good_where_there_would_be_too_much_to_try(self, scope: TopologyScope) -> None:
        scenario = self.node(TopologyPolicy.RESTRICTED, scope).run(self.pod_of(4))
        (pending,) = scenario.manager.pending(GPU)
        assert (pending.reason, pending.is_final, pending.container) == ("TopologyAffinity", True, "c0")
        assert "4 containers of the pod ask for devices that have to be near each other" in pending.message
        assert "that 3 may: ask for them in fewer containers" in pending.message
        scenario.run(replace(self.pod_of(3), uid="q"))
        assert len(scenario.held()) == 3

    def test_is_served_by_best_effort(self) -> None:
        assert len(self.node(TopologyPolicy.BEST_EFFORT).run(self.pod_of(4)).held()) == 4

    @pytest.mark.parametrize("policy", [TopologyPolicy.SINGLE_NUMA_NODE, TopologyPolicy.BEST_EFFORT])
    def test_one_container_is_always_served(self, policy: TopologyPolicy) -> None:
        scenario = self.node(policy).run(pod("p", app("c", 3)))
        assert scenario.held() == {"p/c": ("d0", "d10", "d100")}
        scenario.run(pod("q", app("c", 10001)))
        expected = {"q": "TopologyAffinity"} if policy is TopologyPolicy.SINGLE_NUMA_NODE else {}
        assert scenario.reasons() == expected
        # no plugin has been asked in vain
        assert [pending.retry_at for pending in scenario.manager.pending(GPU)] == [None] * len(expected)
