"""Pods under a topology policy: aligned together, or pending without a call to a plugin."""

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope, pod_request
from nodedevice_agent.devicemanager.pods import Container
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from tests.unit.node_agent.devicemanager.allocation.test_topology import on
from tests.unit.node_agent.devicemanager.pods import GPU, NIC, app, container, init, pod, sidecar
from tests.unit.node_agent.devicemanager.scenario import (
    WITH_PREFERENCES,
    Scenario,
    calls,
    held_by,
    preferred_calls,
    published,
)

TWO = (0, 1)
STRICT = [TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE]


def machine(
    policy: TopologyPolicy,
    gpus: Sequence[int | None],
    nics: Sequence[int | None] = (),
    scope: TopologyScope = TopologyScope.CONTAINER,
    **more: Any,
) -> Scenario:
    """GPUs d0, d1, ... and network cards d0, d1, ... on these nodes of a machine of two."""
    scenario = Scenario.with_plugin(on(*gpus).values(), topology=Topology(policy, scope, TWO), **more)
    if nics:
        scenario.plugin(on(*nics).values(), NIC, 2)
    return scenario


class TestPolicies:
    def test_none_ignores_topology(self) -> None:
        scenario = machine(TopologyPolicy.NONE, [0, 1], [1, 0]).run(pod("p", gpu=1, nic=1))
        assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("d0",)})

    def test_best_effort_takes_the_remaining_devices_across_nodes(self) -> None:
        scenario = machine(TopologyPolicy.BEST_EFFORT, [0, 0, 1, 1])
        occupy_one_on_each_node(scenario)
        scenario.run(pod("p", gpu=2))
        assert scenario.held()["p/main"] == ("d1", "d3")

    @pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, *STRICT])
    def test_a_resource_without_nodes_is_ignored(self, policy: TopologyPolicy) -> None:
        scenario = machine(policy, [1, 1], [None, None]).run(pod("p", gpu=1, nic=2))
        assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("d0", "d1")})


def occupy_one_on_each_node(scenario: Scenario) -> None:
    """Of four devices, two a node, d0 and d2 are held."""
    scenario.cordon(GPU, ["d1", "d3"])
    scenario.run(pod("x", gpu=1), pod("y", gpu=1))
    scenario.cordon(GPU, [])
    assert scenario.held() == {"x/main": ("d0",), "y/main": ("d2",)}


class TestPending:
    @pytest.mark.kubelet("behaviour 54")
    @pytest.mark.parametrize("policy", STRICT)
    def test_reason_and_served_when_a_near_device_is_free(self, policy: TopologyPolicy) -> None:
        scenario = machine(policy, [0, 0, 1, 1])
        occupy_one_on_each_node(scenario)
        assert calls(scenario.see(pod("p", gpu=2))) == []
        (pending,) = scenario.manager.pending(GPU)
        assert pending.reason == "TopologyAffinity"
        assert pending.message == "container main: resources cannot be allocated with topology locality"
        assert pending.retry_at is None
        scenario.answer_all(scenario.gone("y"))
        assert scenario.held()["p/main"] == ("d2", "d3")
        assert scenario.reasons() == {}

    def test_a_change_of_any_of_its_resources_triggers_a_retry(self) -> None:
        scenario = machine(TopologyPolicy.RESTRICTED, [0], [1]).run(pod("p", gpu=1, nic=1))
        assert scenario.reasons() == {"p": "TopologyAffinity"}
        effects = scenario.lists(on(1, 0).values(), NIC, 2)
        # it was shown at the GPUs, and waits there no more
        assert published(effects) == {GPU, NIC}
        scenario.answer_all(effects)
        assert (scenario.held(), scenario.held(NIC)) == ({"p/main": ("d0",)}, {"p/main": ("d1",)})

    @pytest.mark.kubelet("weak spot 2")
    def test_the_rehearsal_leaves_no_reservation(self) -> None:
        scenario = machine(TopologyPolicy.SINGLE_NUMA_NODE, [0, 0, 1, 1])
        assert calls(scenario.see(pod("p", app("a"), app("b", 3)))) == []
        assert scenario.reasons() == {"p": "TopologyAffinity"}
        assert scenario.manager.resources[GPU].use.reserved == {}
        assert scenario.snapshot().available == 4


@pytest.mark.parametrize("policy", STRICT)
def test_an_app_container_stays_near_the_devices_it_reuses(policy: TopologyPolicy) -> None:
    scenario = machine(policy, [0, 0, 1, 1]).run(pod("p", init("i"), app("a", 2)))
    assert scenario.held() == {"p/i": ("d0",), "p/a": ("d0", "d1")}


class TestPodScope:
    @pytest.mark.kubelet("scenario 55")
    @pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, *STRICT])
    def test_all_containers_together(self, policy: TopologyPolicy) -> None:
        is_served = policy is not TopologyPolicy.SINGLE_NUMA_NODE
        scenario = machine(policy, [0, 0, 1, 1], scope=TopologyScope.POD)
        scenario.run(pod("p", app("a", 2), app("b", 2)))
        assert bool(scenario.held()) is is_served
        assert scenario.reasons() == ({} if is_served else {"p": "TopologyAffinity"})

    def test_devices_of_an_init_container_count_once(self) -> None:
        scenario = machine(TopologyPolicy.SINGLE_NUMA_NODE, [0, 1, 1], scope=TopologyScope.POD)
        scenario.run(pod("p", init("i"), app("a", 2)))
        assert scenario.held() == {"p/i": ("d1",), "p/a": ("d1", "d2")}

    def test_resources_of_different_containers_meet_on_one_node(self) -> None:
        for scope, expected in ((TopologyScope.CONTAINER, ("d0",)), (TopologyScope.POD, ("d1",))):
            scenario = machine(TopologyPolicy.RESTRICTED, [0, 1], [1], scope)
            assert scenario.run(pod("p", app("a"), container("b", nic=1))).held() == {"p/a": expected}

    @pytest.mark.kubelet("scenario 58")
    @pytest.mark.parametrize(
        ("containers", "request_"),
        [
            pytest.param([], {}, id="no container"),
            pytest.param([init("i", 2)], {GPU: 2}, id="an init container"),
            pytest.param([init("i", 2), init("j", 3)], {GPU: 3}, id="the larger of two"),
            pytest.param([app("a"), app("b", 2)], {GPU: 3}, id="apps add up"),
            pytest.param([init("i", 2), app("a", 2)], {GPU: 2}, id="as many in both"),
            pytest.param([init("i", 5), app("a", 2)], {GPU: 5}, id="more in the init container"),
            pytest.param([init("i"), container("a", gpu=2, nic=1)], {GPU: 2, NIC: 1}, id="more in the app"),
            pytest.param([sidecar("s"), init("i", 2), app("a")], {GPU: 3}, id="a sidecar stays"),
            pytest.param([init("i", 2), sidecar("s"), app("a")], {GPU: 2}, id="a sidecar comes later"),
        ],
    )
    def test_most_devices_of_a_pod_at_one_time(self, containers: list[Container], request_: dict[str, int]) -> None:
        assert pod_request(list(pod("p", *containers).device_requests)) == request_


def test_only_near_devices_are_offered() -> None:
    scenario = machine(TopologyPolicy.RESTRICTED, [0, 0, 0, 1], [1, 0], options=WITH_PREFERENCES)
    (query,) = preferred_calls(scenario.see(pod("p", gpu=2, nic=1)))
    assert (query.available, query.must_include, query.size) == (("d0", "d1", "d2"), (), 2)
    (call,) = calls(scenario.prefer(query, "d3", "d2"))
    assert call.device_ids == ("d0", "d2")


def test_a_near_device_taken_during_a_call() -> None:
    scenario = machine(TopologyPolicy.RESTRICTED, [0, 1], [0, 1, 1])
    (first,) = calls(scenario.see(pod("p", gpu=1, nic=1)))
    scenario.run(pod("q", nic=1))
    assert scenario.held(NIC) == {"q/main": ("d0",)}
    scenario.answer_all(scenario.answer(first))
    # p had d0 on node 0, whose only network card q has by now
    assert scenario.held() == {"p/main": ("d1",)}
    assert scenario.held(NIC) == {"q/main": ("d0",), "p/main": ("d1",)}


class TestRestart:
    @pytest.mark.kubelet("weak spot 5")
    def test_held_devices_are_not_checked_again(self) -> None:
        checkpoint = machine(TopologyPolicy.NONE, [0, 1]).run(pod("p", gpu=2)).manager.checkpoint()
        again = machine(TopologyPolicy.SINGLE_NUMA_NODE, [0, 1], checkpoint=checkpoint).run(pod("p", gpu=2))
        assert (again.held(), again.reasons()) == ({"p/main": ("d0", "d1")}, {})

    def test_another_number_of_held_devices_than_requested_cannot_be_aligned_with(self) -> None:
        checkpoint = Checkpoint((held_by("p", "d0", "d1", name=NIC),))
        again = machine(TopologyPolicy.RESTRICTED, [0], [0, 0], checkpoint=checkpoint)
        assert calls(again.see(pod("p", gpu=1, nic=1))) == []
        assert again.reasons() == {"p": "TopologyAffinity"}

    @pytest.mark.parametrize("scope", list(TopologyScope))
    def test_held_devices_decide_for_the_missing_ones(self, scope: TopologyScope) -> None:
        scenario = machine(TopologyPolicy.RESTRICTED, [1, 0], scope=scope)
        scenario.cordon(GPU, ["d1"])
        scenario.run(pod("p", gpu=1, nic=1))
        assert scenario.held() == {"p/main": ("d0",)}
        scenario.answer_all(scenario.plugin(on(0, 1).values(), NIC, 2))
        assert scenario.held(NIC) == {"p/main": ("d1",)}

    def test_a_partly_allocated_pod_cannot_be_aligned_as_a_whole(self) -> None:
        node: Any = (TopologyPolicy.RESTRICTED, [0, 0, 0], (), TopologyScope.POD)
        again = machine(*node, checkpoint=machine(*node).run(pod("p", init("i"))).manager.checkpoint())
        assert again.run(pod("p", init("i"), app("a", 2))).reasons() == {"p": "TopologyAffinity"}


pods = st.lists(
    st.builds(
        lambda gpu, nic, more: (container("a", gpu=gpu, nic=nic), container("b", gpu=more)),
        st.integers(0, 3),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.kubelet("scenario 34", "scenario 35")
@given(
    policy=st.sampled_from(STRICT),
    scope=st.sampled_from(TopologyScope),
    wanted=pods,
    order=st.randoms(use_true_random=False),
)
def test_a_strict_policy_holds_for_any_order_of_responses(
    policy: TopologyPolicy, scope: TopologyScope, wanted: list[tuple[Container, ...]], order: Random
) -> None:
    gpus, nics = [0, 0, 0, 1, 1, 1], [0, 0, 1, 1]
    scenario = machine(policy, gpus, nics, scope)
    scenario.see(*(pod(f"p{index}", *containers) for index, containers in enumerate(wanted)))
    todo = calls(scenario.effects)
    while todo:
        todo += calls(scenario.answer(todo.pop(order.randrange(len(todo)))))
        assert len(calls(scenario.effects)) < 200, "they chase each other"
    nodes: dict[str, set[int]] = {}
    for name, devices in ((GPU, gpus), (NIC, nics)):
        assert scenario.manager.resources[name].use.reserved == {}
        for key, ids in scenario.held(name).items():
            together = key.partition("/")[0] if scope is TopologyScope.POD else key
            nodes.setdefault(together, set()).update(devices[int(i[1:])] for i in ids)
    # three GPUs or two cards fit one node, so nothing here needs two, but a whole pod may
    if policy is TopologyPolicy.SINGLE_NUMA_NODE or scope is TopologyScope.CONTAINER:
        assert all(len(found) == 1 for found in nodes.values())
