"""What an assignment may be, and percent of multiprocessors; plans by each rule are in the agent's tests of parts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement
from nodedevice_kube.planner import MOST_CONTAINERS, MOST_PLANNED, Misfit, Need, Parts, Planner

SAME = PartRules(Placement.SAME_PARENT)
DISTINCT = PartRules(Placement.DISTINCT_PARENTS)


@pytest.mark.parametrize(
    ("rules", "wanted", "is_met"),
    [
        pytest.param(SAME, [{"a": 4}, {"b": 2}], True, id="each on one"),
        pytest.param(SAME, [{"a": 4}, {"a": 2}], True, id="both on the same"),
        pytest.param(SAME, [{"b": 4}, {"b": 2}], False, id="more than there are"),
        pytest.param(SAME, [{"a": 2, "b": 2}, {"a": 2}], False, id="over two"),
        pytest.param(SAME, [{"a": 3}, {"a": 2}], False, id="another number"),
        pytest.param(SAME, [{"x": 4}, {"a": 2}], False, id="unknown"),
        pytest.param(PartRules(), [{"a": 2, "b": 2}, {"a": 2}], True, id="any"),
        pytest.param(DISTINCT, [{"a": 4}, {"a": 1, "b": 1}], False, id="not distinct"),
    ],
)
def test_an_assignment_is_met_or_not(rules: PartRules, wanted: list[Parts], is_met: bool) -> None:
    planner = Planner(rules, {"a": 6, "b": 5})
    assert planner.can_take([Need(4), Need(2)], wanted) is is_met
    # and takes nothing
    assert planner.can_take([Need(4), Need(2)], [{"a": 4}, {"a": 2}]) is (rules is not DISTINCT)


def test_a_search_finds_what_the_first_choices_leave_no_room_for() -> None:
    assert Planner(SAME, {"a": 4, "b": 6}).plan([Need(3), Need(3), Need(4)]) == [{"b": 3}, {"b": 3}, {"a": 4}]


def test_of_what_is_only_reusable_nothing_is_free() -> None:
    planner = Planner(SAME, {}, reusable={"a": 4})
    assert planner.plan([Need(5)]) == Misfit(0, 4)
    assert planner.plan([Need(4), Need(1)]) == Misfit(1, 0)
    # the fullest first, where both have as many reusable parts
    planner = Planner(SAME, {"a": 1}, reusable={"a": 4, "z": 4})
    assert planner.plan([Need(4)]) == [{"z": 4}]


def test_together_is_where_there_is_just_enough_for_all() -> None:
    together = PartRules(Placement.SAME_PARENT, Choice.BINPACK, PodPlacement.TOGETHER)
    planner = Planner(together, {"a": 3, "b": 5})
    assert planner.plan([Need(1), Need(2)]) == [{"a": 1}, {"a": 2}]
    assert planner.plan([Need(1), Need(3)]) == [{"b": 1}, {"b": 3}]


def test_a_physical_device_without_numa_nodes_is_near_none() -> None:
    planner = Planner(SAME, {"a": 4, "b": 4}, numa_nodes={"b": (0, 1)})
    assert planner.plan([Need(1, near=frozenset({1}))]) == [{"b": 1}]
    assert planner.plan([Need(1, near=frozenset({2}))]) == [{"a": 1}]
    assert planner.plan([Need(1, near=frozenset({2}), is_strict=True)]) == Misfit(0, 4)


def test_plans_of_one_planner_leave_no_trace() -> None:
    apart = PartRules(Placement.SAME_PARENT, Choice.BINPACK, PodPlacement.APART)
    planner = Planner(apart, {"a": 4, "b": 4})
    assert planner.can_take([Need(1)], [{"a": 1}])
    for _ in range(3):
        assert planner.plan([Need(1)]) == [{"a": 1}]
    assert planner.plan([Need(1), Need(1)]) == [{"a": 1}, {"b": 1}]


class TestPercent:
    def test_what_a_container_that_stays_has_is_not_free_again(self) -> None:
        planner = Planner(SAME, {"a": 8}, percent_left={"a": 50})
        needs = [Need(4, is_init=True), Need(2, percent=50), Need(2)]
        assert planner.plan(needs) == [{"a": 4}, {"a": 2}, {"a": 2}]
        assert planner.plan([*needs[:2], Need(2, percent=1)]) == Misfit(2, 6)

    def test_what_an_init_container_had_is_free_for_those_that_take_over_its_parts(self) -> None:
        planner = Planner(SAME, {"a": 8}, percent_left={"a": 60})
        init = Need(4, is_init=True, percent=60)
        assert planner.plan([init, Need(4, percent=60)]) == [{"a": 4}, {"a": 4}]
        assert isinstance(planner.plan([init, Need(4, percent=60), Need(1, percent=1)]), Misfit)
        assert isinstance(planner.plan([Need(4, percent=60), Need(4, percent=60)]), Misfit)
        assert planner.plan([init, Need(4, percent=60)]) == [{"a": 4}, {"a": 4}], "a plan takes nothing"
        others = Planner(SAME, {"a": 8}, percent_left={"a": 60}, promised=["a"])
        assert isinstance(others.plan([init, Need(4, percent=60)]), Misfit), "another pod could lack it"

    def test_it_is_taken_where_there_is_enough(self) -> None:
        planner = Planner(SAME, {"a": 8, "b": 20}, percent_left={"a": 40, "b": 100})
        assert planner.plan([Need(4, percent=50)]) == [{"b": 4}]
        assert planner.plan([Need(4, percent=40)]) == [{"a": 4}]
        assert planner.plan([Need(4)]) == [{"a": 4}]

    def test_containers_share_it(self) -> None:
        planner = Planner(SAME, {"a": 8, "b": 8}, percent_left={"a": 60, "b": 50})
        needs = [Need(1, percent=50), Need(1, percent=60)]
        assert planner.plan(needs) == [{"b": 1}, {"a": 1}]
        assert isinstance(planner.plan([*needs, Need(1, percent=20)]), Misfit)
        assert planner.plan(needs) == [{"b": 1}, {"a": 1}]
        assert not planner.can_take(needs, [{"a": 1}, {"a": 1}])

    def test_none_is_left_of_what_is_not_known(self) -> None:
        assert Planner(SAME, {"a": 8}, percent_left={}).plan([Need(4, percent=1)]) == Misfit(0, 8)


_RULES = st.builds(PartRules, st.sampled_from([*Placement][1:]), st.sampled_from(Choice), st.sampled_from(PodPlacement))


@given(
    _RULES,
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 8), min_size=1),
    st.lists(st.builds(Need, st.integers(1, 8), st.booleans(), percent=st.integers(0, 100)), min_size=1, max_size=4),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 100)),
)
def test_a_plan_can_be_taken(rules: PartRules, free: dict[str, int], needs: list[Need], left: dict[str, int]) -> None:
    planner = Planner(rules, free, percent_left=left)
    plan = planner.plan(needs)
    assert isinstance(plan, Misfit) or planner.can_take(needs, plan)


@pytest.mark.parametrize(
    ("devices", "containers", "problem"),
    [
        (1, MOST_CONTAINERS, ""),
        (1, MOST_CONTAINERS + 1, "129 containers of the pod ask for parts, and 128 may"),
        (1000, 4, ""),
        (1000, 5, "5 containers of the pod ask for parts of 1000 devices, and 4 may"),
        (MOST_PLANNED // 2, 2, ""),
        (MOST_PLANNED // 2 + 1, 2, "2 containers of the pod ask for parts of 2049 devices, and 1 may"),
        # one is always planned
        (MOST_PLANNED + 1, 1, ""),
        (MOST_PLANNED + 1, 0, ""),
    ],
)
def test_of_so_many_containers_times_devices_is_a_plan(devices: int, containers: int, problem: str) -> None:
    """Each pair of a container and a physical device takes microseconds, in which nobody else is served."""
    found = Planner(SAME, {f"d{index}": 1000 for index in range(devices)}).plan([Need(1)] * containers)
    assert found == (Misfit(0, 0, problem) if problem else [{"d0": 1}] * containers)
