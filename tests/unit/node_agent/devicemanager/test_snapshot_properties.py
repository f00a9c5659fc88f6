"""A snapshot reads few devices and equals one that is computed from all of them."""

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.flap_damping import FlapDampingLimits
from nodedevice_agent.devicemanager.snapshot import MAX_UNHEALTHY_NAMED, Snapshot

from tests.examples import examples
from tests.unit.node_agent.devicemanager.scenario import GPU, Scenario, pod

IDS = [f"d{index:02}" for index in range(24)]
# of each ID, whether it is listed as healthy; None: it is not listed
LISTS = st.lists(st.sampled_from([True, True, True, False, None]), min_size=len(IDS), max_size=len(IDS))
CORDONS = st.sets(st.sampled_from([*IDS, "ghost", "*", "all"]), max_size=3)
_BOUNDS = "nodedevice_agent.devicemanager.snapshot"


@settings(max_examples=examples(300), deadline=None)
@given(
    lists=st.lists(LISTS, min_size=1, max_size=3),
    held=st.lists(st.integers(1, 3), max_size=3),
    over=st.sets(st.sampled_from(["p0", "p1", "p2"])),
    in_flight=st.booleans(),
    is_damped=st.booleans(),
    cordoned=CORDONS,
    is_stopped=st.booleans(),
    whole=st.sampled_from([0, 20, 256]),
    most=st.sampled_from([1, 3, 4096]),
)
def test_it_equals_the_simple_computation(
    lists: list[list[bool | None]],
    held: list[int],
    over: set[str],
    in_flight: bool,
    is_damped: bool,
    cordoned: set[str],
    is_stopped: bool,
    whole: int,
    most: int,
) -> None:
    limits = FlapDampingLimits(changes=1 if is_damped else 0)
    scenario = Scenario(waits_for_runtime=True, flapping=limits)
    first, *others = ([Device(i, h) for i, h in zip(IDS, listed, strict=True) if h is not None] for listed in lists)
    scenario.plugin(first)
    scenario.run(*(pod(f"p{index}", gpu=count) for index, count in enumerate(held)))
    for uid in sorted(over):
        scenario.gone(uid)
    if in_flight:
        scenario.see(pod("asks", gpu=1))
    for listed in others:
        scenario.lists(listed)
    scenario.cordon(GPU, cordoned)
    if is_stopped:
        scenario.disconnect()
    with patch.multiple(_BOUNDS, MAX_FULL_LIST=whole, MAX_NAMED_DEVICES=most):
        it_is_plainly_so(scenario, scenario.snapshot(), whole, most)


def it_is_plainly_so(scenario: Scenario, seen: Snapshot, whole: int, most: int) -> None:
    resource = scenario.manager.resources[GPU]
    ids = sorted({*resource.devices, *resource.use.holders})
    healthy, cordoned = (
        {i for i in ids if availability.is_healthy(resource, i)},
        set(filter(resource.use.is_cordoned, ids)),
    )
    usable = healthy - cordoned
    assert (seen.total, seen.healthy, seen.cordoned) == (len(ids), len(healthy), len(cordoned))
    assert seen.available == len(usable - resource.use.holders.keys())
    assert availability.free_count(resource) == len(availability.free(resource))
    named = [i for i in ids if len(ids) <= whole or i not in healthy or i in cordoned or i in resource.use.holders]
    if not resource.is_live:
        named = [i for i in ids if i in resource.use.cordoned_ids or i in resource.use.holders]
    noteworthy = {i for i in resource.use.cordoned_ids if i in resource.devices}
    if resource.is_live:
        # Of those that are not healthy no more than the bound are looked at.
        not_healthy = [i for i in ids if i not in healthy][:most]
        noteworthy |= {*named} if len(ids) <= whole or "*" in resource.use.cordoned_ids else {*not_healthy}
    named = [i for i in named if i in noteworthy or i in resource.use.holders]
    assert [(view.id, view.healthy, view.present, view.cordoned) for view in seen.devices] == [
        (i, i in healthy, i in resource.devices, i in cordoned) for i in first_of(named, noteworthy, most)
    ]
    unhealthy = [i for i in ids if i not in healthy] if resource.is_live else []
    assert [view.id for view in seen.unhealthy] == unhealthy[: min(MAX_UNHEALTHY_NAMED, most)]
    assert all(view.reason and view.message for view in seen.unhealthy)


def first_of(named: list[str], noteworthy: set[str], most: int) -> list[str]:
    """Where there is no room for all: of those that are not healthy or cordoned, and others, first those that are fewer."""
    groups = sorted(([i for i in named if i in noteworthy], [i for i in named if i not in noteworthy]), key=len)
    return sorted([*groups[0], *groups[1]][:most])
