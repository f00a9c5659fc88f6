"""Parts of physical devices: which of these the containers of a pod get parts of, by each rule, and what fits nowhere."""

from collections.abc import Mapping

import pytest
from msgspec import structs
from nodedevice_agent.devicemanager.allocation.parts import Parents
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_api.names import Reason
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement, parent_and_number
from nodedevice_kube.planner import Misfit, Need, Parts, Planner

from tests.unit.node_agent.devicemanager.pods import GPU, NIC, app, container, init, pod, sidecar
from tests.unit.node_agent.devicemanager.scenario import SAME, WITH_PREFERENCES, Scenario, calls, parts, preferred_calls

SPREAD = PartRules(Placement.SAME_PARENT, Choice.SPREAD)
TOGETHER = PartRules(Placement.SAME_PARENT, containers=PodPlacement.TOGETHER)
APART = PartRules(Placement.SAME_PARENT, containers=PodPlacement.APART)
SPREAD_TOGETHER = PartRules(Placement.SAME_PARENT, Choice.SPREAD, PodPlacement.TOGETHER)
DISTINCT = PartRules(Placement.DISTINCT_PARENTS)
DISTINCT_SPREAD = PartRules(Placement.DISTINCT_PARENTS, Choice.SPREAD)
ANY = PartRules()
ANY_SPREAD = PartRules(choice=Choice.SPREAD)


def parents(rules: PartRules, free: dict[str, int]) -> Planner:
    """Of ten parts each, so many are free."""
    listed = parts(rules, **dict.fromkeys(free, 10))
    return Parents(listed, [f"{parent}-{number}" for parent, count in free.items() for number in range(count)]).planner


def needs(*counts: int) -> list[Need]:
    return [Need(count) for count in counts]


@pytest.mark.parametrize(
    ("rules", "free", "counts", "expected"),
    [
        pytest.param(SAME, {"a": 9, "b": 4, "c": 3}, [4], [{"b": 4}], id="the fullest that still fits"),
        pytest.param(SAME, {"b": 4, "a": 4}, [4], [{"a": 4}], id="the first of equals"),
        pytest.param(SPREAD, {"a": 4, "b": 9, "c": 5}, [4], [{"b": 4}], id="spread: the emptiest"),
        pytest.param(SPREAD, {"a": 9, "b": 9}, [2, 2, 2], [{"a": 2}, {"b": 2}, {"a": 2}], id="spread: in turn"),
        pytest.param(SAME, {"a": 9, "b": 9}, [2, 2, 2], [{"a": 2}, {"a": 2}, {"a": 2}], id="binpack: one is filled"),
        pytest.param(APART, {"a": 9, "b": 9}, [2, 2, 2], [{"a": 2}, {"b": 2}, {"a": 2}], id="apart where possible"),
        pytest.param(APART, {"a": 9, "b": 1}, [2, 2], [{"a": 2}, {"a": 2}], id="apart is not possible"),
        pytest.param(TOGETHER, {"a": 3, "b": 9}, [3, 5], [{"b": 3}, {"b": 5}], id="together: where all fit"),
        pytest.param(SPREAD_TOGETHER, {"a": 9, "b": 8}, [2, 2], [{"a": 2}, {"a": 2}], id="together before spread"),
        pytest.param(TOGETHER, {"a": 3, "b": 5}, [3, 5], [{"a": 3}, {"b": 5}], id="together is not possible"),
        pytest.param(SPREAD, {"a": 9, "b": 3}, [3, 9], [{"b": 3}, {"a": 9}], id="the first leaves room for the second"),
        pytest.param(SAME, {"a": 6, "b": 4}, [3, 4, 3], [{"a": 3}, {"b": 4}, {"a": 3}], id="so that the others fit"),
        pytest.param(DISTINCT, {"a": 3, "b": 1, "c": 2}, [2], [{"b": 1, "c": 1}], id="distinct: the fullest"),
        pytest.param(DISTINCT_SPREAD, {"a": 3, "b": 1, "c": 2}, [2], [{"a": 1, "c": 1}], id="distinct: spread"),
        pytest.param(DISTINCT, {"a": 2, "b": 1}, [1, 2], [{"a": 1}, {"a": 1, "b": 1}], id="distinct: it is left"),
    ],
)
def test_a_plan(rules: PartRules, free: dict[str, int], counts: list[int], expected: list[Parts]) -> None:
    assert parents(rules, free).plan(needs(*counts)) == expected


@pytest.mark.parametrize(
    ("rules", "free", "counts", "expected"),
    [
        pytest.param(SAME, {"a": 3, "b": 2}, [4], Misfit(0, 3), id="the sum would do"),
        pytest.param(SAME, {"a": 5, "b": 5}, [4, 4, 2], Misfit(2, 1), id="the third container"),
        pytest.param(SAME, {}, [1], Misfit(0, 0), id="nothing is free"),
        pytest.param(DISTINCT, {"a": 9, "b": 1}, [3], Misfit(0, 2), id="fewer devices"),
        pytest.param(DISTINCT, {"a": 1, "b": 1}, [1, 2], Misfit(1, 1), id="fewer devices for the second"),
    ],
)
def test_what_does_not_fit(rules: PartRules, free: dict[str, int], counts: list[int], expected: Misfit) -> None:
    found = parents(rules, free)
    assert found.plan(needs(*counts)) == expected
    # a plan takes nothing
    assert found.plan(needs(*counts)) == expected


def taken(scenario: Scenario) -> dict[str, dict[str, int]]:
    """How many parts of which physical devices each container has."""
    found: dict[str, dict[str, int]] = {}
    for name, ids in scenario.held().items():
        for device_id in ids:
            part = parent_and_number(device_id)
            assert part is not None
            of_container = found.setdefault(name, {})
            of_container[part[0]] = of_container.get(part[0], 0) + 1
    return found


class TestPods:
    def test_the_lowest_numbers_are_taken(self) -> None:
        scenario = Scenario.with_plugin(parts(a=12)).run(pod("p", gpu=11))
        assert scenario.held() == {"p/main": tuple(sorted(f"a-{n}" for n in range(11)))}
        scenario.gone("p")
        assert scenario.run(pod("q", gpu=1)).held() == {"q/main": ("a-0",)}

    def test_what_fits_on_no_device_waits_though_the_sum_would_do(self) -> None:
        scenario = Scenario.with_plugin(parts(a=4, b=4)).run(pod("p", gpu=2), pod("q", gpu=3))
        assert taken(scenario) == {"p/main": {"a": 2}, "q/main": {"b": 3}}
        assert calls(scenario.see(pod("r", gpu=3))) == []
        (waiting,) = scenario.manager.pending(GPU)
        assert waiting.reason == Reason.NO_DEVICE_FITS
        assert waiting.message == f"no device has 3 of {GPU} free; the most is 2"
        scenario.answer_all(scenario.gone("p"))
        assert taken(scenario)["r/main"] == {"a": 3}

    def test_more_than_any_device_has_is_named(self) -> None:
        scenario = Scenario.with_plugin(parts(a=4, b=4)).run(pod("p", gpu=5), pod("q", gpu=9))
        assert scenario.reasons() == dict.fromkeys("pq", Reason.NO_DEVICE_FITS)
        assert all(
            w.message.endswith("the most is 4; the node has too few even when all are free")
            for w in scenario.manager.pending(GPU)
        )
        scenario.answer_all(scenario.lists(parts(a=4, b=5)))
        assert taken(scenario) == {"p/main": {"b": 5}}

    def test_distinct_devices(self) -> None:
        scenario = Scenario.with_plugin(parts(DISTINCT, a=2, b=2)).run(pod("p", gpu=2), pod("q", gpu=1))
        assert taken(scenario) == {"p/main": {"a": 1, "b": 1}, "q/main": {"a": 1}}
        scenario.run(pod("r", gpu=2), pod("s", gpu=3))
        first, second = scenario.manager.pending(GPU)
        assert first.message == f"fewer than 2 devices have one of {GPU} free; the most is 1"
        assert second.message.endswith("the most is 1; the node has too few even when all are free")

    def test_all_containers_of_a_pod_are_considered_before_the_first_call(self) -> None:
        scenario = Scenario.with_plugin(parts(a=3, b=3))
        assert calls(scenario.see(pod("p", app("x", 2), app("y", 2), app("z", 2)))) == []
        (waiting,) = scenario.manager.pending(GPU)
        assert (waiting.container, waiting.reason) == ("z", Reason.NO_DEVICE_FITS)
        assert scenario.manager.resources[GPU].use.reserved == {}

    def test_a_pod_that_others_overtake_twice_waits_and_says_what_fits_nowhere(self) -> None:
        scenario = Scenario.with_plugin(parts(SPREAD, a=4, c=4))
        (first,) = calls(scenario.see(pod("p", app("x"), app("y", 3))))
        scenario.run(*(pod(uid, gpu=1) for uid in "qrs"))
        # without its own part there is room where it began
        (second,) = calls(scenario.answer(first))
        assert (first.device_ids, second.device_ids) == (("a-0",), ("c-2",))
        scenario.run(pod("t", gpu=1))
        assert calls(scenario.answer(second)) == []
        (pending,) = scenario.manager.pending(GPU)
        assert (pending.container, pending.reason, pending.attempts) == ("y", Reason.NO_DEVICE_FITS, 1)

    def test_beside_parts_of_an_init_container_only_the_rest_is_looked_for(self) -> None:
        scenario = Scenario.with_plugin(parts(ANY, w=1, x=1, y=3)).run(pod("p", init("i"), app("c", 2)))
        assert scenario.held() == {"p/i": ("w-0",), "p/c": ("w-0", "x-0")}

    def test_the_plugin_is_not_asked_for_its_preference_where_a_rule_decides(self) -> None:
        scenario = Scenario.with_plugin(parts(a=3, b=3), options=WITH_PREFERENCES)
        assert preferred_calls(scenario.see(pod("p", gpu=2))) == []

    def test_without_placement_its_preference_counts(self) -> None:
        scenario = Scenario.with_plugin(parts(ANY, a=3, b=1), options=WITH_PREFERENCES)
        (asked,) = preferred_calls(scenario.see(pod("p", gpu=2)))
        assert asked.available == ("a-0", "a-1", "a-2", "b-0")
        scenario.answer_all(scenario.prefer(asked, "a-2"))
        assert scenario.held() == {"p/main": ("a-0", "a-2")}

    @pytest.mark.parametrize(
        ("rules", "count", "expected"),
        [
            (ANY, 1, {"c": 1}),
            (ANY, 2, {"b": 2}),
            (ANY, 5, {"b": 2, "c": 1, "a": 2}),
            (ANY_SPREAD, 2, {"a": 2}),
            (ANY_SPREAD, 4, {"a": 3, "b": 1}),
        ],
    )
    def test_a_choice_without_placement(self, rules: PartRules, count: int, expected: dict[str, int]) -> None:
        scenario = Scenario.with_plugin(parts(rules, a=4, b=2, c=1)).run(pod("p", gpu=count))
        assert taken(scenario) == {"p/main": expected}


class TestInitContainers:
    def test_reused_and_new_parts_are_of_one_device(self) -> None:
        scenario = Scenario.with_plugin(parts(a=3, b=4)).run(pod("p", init("i", 2), app("x", 4)))
        assert taken(scenario) == {"p/i": {"b": 2}, "p/x": {"b": 4}}

    def test_what_cannot_be_reused_on_one_device_is_left(self) -> None:
        scenario = Scenario.with_plugin(parts(a=3, b=4)).run(
            pod("p", init("i", 3), sidecar("s", 2), init("j", 3), app("x", 2))
        )
        assert taken(scenario) == {"p/i": {"a": 3}, "p/s": {"a": 2}, "p/j": {"b": 3}, "p/x": {"b": 2}}

    def test_an_unhealthy_part_is_not_reused(self) -> None:
        scenario = Scenario.with_plugin(parts(a=2))
        (call,) = calls(scenario.see(pod("p", init("i"), app("x", 2))))
        listed = [Device(f"a-{n}", n > 0, parent="a") for n in range(3)]
        scenario.happens("listed", GPU, 1, accept(listed, part_rules=SAME))
        scenario.answer_all(scenario.answer(call))
        assert scenario.held() == {"p/i": ("a-1",), "p/x": ("a-1", "a-2")}


def beside_a_nic(topology: Topology, rules: PartRules, **nodes: int) -> Scenario:
    """Four parts of each physical device, which is on that NUMA node, and a network card on node 1."""
    devices = (Device(f"{p}-{n}", numa_nodes=(node,), parent=p) for p, node in nodes.items() for n in range(4))
    scenario = Scenario.with_plugin(accept(devices, part_rules=rules), topology=topology)
    scenario.plugin([Device("n1", numa_nodes=(1,))], NIC, 2)
    return scenario


class TestTopology:
    def node(self, rules: PartRules, sizes: dict[str, int], nodes: Mapping[str, tuple[int, ...]]) -> Scenario:
        """Of such physical devices, on these NUMA nodes."""
        listed = parts(rules, **sizes).devices.values()
        devices = (structs.replace(part, numa_nodes=nodes.get(part.parent, ())) for part in listed)
        topology = Topology(TopologyPolicy.RESTRICTED, numa_nodes=(0, 1))
        return Scenario.with_plugin(accept(devices, part_rules=rules), topology=topology)

    def test_one_that_is_too_small_is_near_to_nothing(self) -> None:
        scenario = self.node(SAME, {"a": 2, "b": 3}, {"a": (0,)}).run(pod("p", gpu=3))
        assert taken(scenario) == {"p/main": {"b": 3}}

    def test_any_has_enough_for_one_part(self) -> None:
        nodes = dict.fromkeys("abc", (0,)) | {"d": (1,)}
        scenario = self.node(DISTINCT, {"a": 1, "b": 1, "c": 1, "d": 3}, nodes).run(pod("p", gpu=3))
        assert taken(scenario) == {"p/main": dict.fromkeys("abc", 1)}

    @pytest.mark.parametrize(("rules", "sizes"), [(DISTINCT, {"a": 1, "b": 1}), (SAME, {"a": 2})])
    def test_a_part_of_an_init_container_counts(self, rules: PartRules, sizes: dict[str, int]) -> None:
        scenario = self.node(rules, sizes, dict.fromkeys(sizes, (0,))).run(pod("p", init("i"), app("c", 2)))
        assert taken(scenario)["p/c"] == sizes

    def test_no_far_parts_are_taken_when_others_have_taken_the_near_ones_meanwhile(self) -> None:
        devices = [Device(f"{p}-{n}", parent=p, numa_nodes=(int(p == "b"),)) for p in "abc" for n in range(4)]
        topology = Topology(TopologyPolicy.SINGLE_NUMA_NODE, TopologyScope.POD, numa_nodes=(0, 1))
        scenario = Scenario.with_plugin(accept(devices, part_rules=SAME), topology=topology)
        scenario.plugin([Device("n0", numa_nodes=(0,))], NIC, 2)
        (first,) = calls(scenario.see(pod("p", app("x"), container("y", gpu=3, nic=1))))
        assert first.device_ids == ("a-0",)
        scenario.run(pod("q", gpu=1), pod("r", gpu=3))
        assert calls(scenario.answer(first)) == []
        assert taken(scenario) == {"q/main": {"a": 1}, "r/main": {"c": 3}}
        assert scenario.reasons() == {"p": Reason.TOPOLOGY_AFFINITY}

    @pytest.mark.parametrize("scope", TopologyScope)
    @pytest.mark.parametrize("policy", [TopologyPolicy.BEST_EFFORT, TopologyPolicy.SINGLE_NUMA_NODE])
    def test_the_physical_device_is_near_the_others(self, policy: TopologyPolicy, scope: TopologyScope) -> None:
        scenario = beside_a_nic(Topology(policy, scope, numa_nodes=(0, 1)), SAME, a=0, b=1)
        scenario.run(pod("p", gpu=3, nic=1))
        assert taken(scenario) == {"p/main": {"b": 3}}

    @pytest.mark.parametrize(
        ("policy", "reason"),
        [(TopologyPolicy.BEST_EFFORT, None), (TopologyPolicy.RESTRICTED, Reason.TOPOLOGY_AFFINITY)],
    )
    def test_two_devices_of_one_node_are_not_one(self, policy: TopologyPolicy, reason: str | None) -> None:
        """Of node 1 enough parts are free, but not of one device; and the network card is there."""
        scenario = beside_a_nic(Topology(policy, numa_nodes=(0, 1)), SPREAD, a=0, b=1, c=1)
        scenario.run(pod("x", gpu=4), pod("y", gpu=2), pod("z", gpu=2))
        scenario.answer_all(scenario.gone("x"))
        assert taken(scenario) == {"y/main": {"b": 2}, "z/main": {"c": 2}}
        scenario.run(pod("p", gpu=3, nic=1))
        assert scenario.reasons().get("p") == reason
        assert taken(scenario).get("p/main") == (None if reason else {"a": 3})


def test_a_pod_of_too_many_containers_waits_for_good() -> None:
    """Its plan would keep everybody else waiting."""
    scenario = Scenario.with_plugin(parts(SAME, **{f"g{index}": 2 for index in range(100)}))
    scenario.run(pod("p", *(app(f"c{index}") for index in range(100))))
    pending = scenario.manager.allocator.pending["p"]
    assert pending.message == f"{GPU}: 100 containers of the pod ask for parts of 100 devices, and 40 may"
    assert (pending.reason, pending.is_final) == ("NoDeviceFits", True)
    scenario.run(pod("q", *(app(f"c{index}") for index in range(40))))
    assert len(scenario.held()) == 40
