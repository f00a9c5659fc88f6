"""Agent, scheduler extender and `kubectl nodedevice why` say alike whether a pod fits, and as trying everything says."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st
from kubectl_nodedevice.cluster import PartRules as ShownRules
from kubectl_nodedevice.why.links import devices
from kubectl_nodedevice.why.links.devices import Unit, Wanted
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement
from nodedevice_kube.planner import Need
from nodedevice_operator.objects.bound_pod import PodNeeds

from tests.unit.node_agent.devicemanager.scenario import Scenario, container, init, parts, pod
from tests.unit.operator.extender.fleets import MEM, fleet, node, reason

RULES = st.builds(PartRules, st.sampled_from(Placement), st.sampled_from(Choice), st.sampled_from(PodPlacement))
NEEDS = st.lists(st.tuples(st.integers(1, 4), st.booleans()), min_size=1, max_size=3)


@given(RULES, st.lists(st.integers(0, 4), min_size=1, max_size=3), NEEDS)
def test_three_programs_say_whether_a_pod_fits(
    rules: PartRules, free: list[int], counts: list[tuple[int, bool]]
) -> None:
    """free: parts of each device. counts: of each container, and whether it is an init container; these come first."""
    counts.sort(key=lambda each: not each[1])
    needs = tuple(Need(count, is_init, f"c{i}") for i, (count, is_init) in enumerate(counts))
    fits = _fits(rules.placement, dict(enumerate(free)), {}, needs)
    assert (reason(fleet(node("a", *free, rules=rules)), PodNeeds(((MEM, needs),))) == "") is fits
    shown = ShownRules(rules.placement, rules.choice, rules.containers)
    units = [Unit(f"g{i}", count, count) for i, count in enumerate(free)]
    assert (devices.obstacles("a", Wanted(MEM, needs, shown), units) == ()) is fits
    scenario = Scenario.with_plugin(parts(rules, **{f"g{i}": count for i, count in enumerate(free)}))
    scenario.run(pod("p", *((init if n.is_init else container)(n.container, gpu=n.count) for n in needs)))
    assert (scenario.manager.allocator.pending == {}) is fits


def _fits(placement: Placement, free: Mapping[int, int], reusable: Mapping[int, int], needs: Sequence[Need]) -> bool:
    """Whether any way of taking parts meets all needs. What an init container had is reused before other parts are taken."""
    if not needs:
        return True
    need, *later = needs
    for taken in _ways(placement, {i: free[i] + reusable.get(i, 0) for i in free}, need.count):
        reused = {i: min(count, reusable.get(i, 0)) for i, count in taken.items()}
        left = {i: free[i] - taken.get(i, 0) + reused.get(i, 0) for i in free}
        gained = {i: taken[i] - reused[i] if need.is_init else -reused[i] for i in taken}
        if _fits(placement, left, {i: reusable.get(i, 0) + gained.get(i, 0) for i in free}, later):
            return True
    return False


def _ways(placement: Placement, rooms: Mapping[int, int], count: int) -> Iterator[dict[int, int]]:
    if placement is Placement.SAME_PARENT:
        yield from ({i: count} for i, room in rooms.items() if room >= count)
    elif placement is Placement.DISTINCT_PARENTS:
        yield from (dict.fromkeys(chosen, 1) for chosen in combinations([i for i in rooms if rooms[i]], count))
    else:
        units = [i for i, room in rooms.items() for _ in range(room)]
        yield from ({i: chosen.count(i) for i in chosen} for chosen in set(combinations(units, count)))
