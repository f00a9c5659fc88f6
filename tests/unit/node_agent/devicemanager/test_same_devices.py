"""What is held back after each change is what a comparison of all devices with each other finds."""

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from nodedevice_agent.devicemanager.resources.connections import BUILT_IN, PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.devicemanager.resources.same_device_winners import Claim, winners
from nodedevice_agent.identity import Identity
from nodedevice_api.names import ALL_DEVICES

from tests.examples import examples
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, pod

NAMES = (GPU, NIC)
OPTIONS = PluginOptions(scope=f"{BUILT_IN}generic")
# few, so that many of them are the same device
TOKENS = (
    *("c1:1", "c1:2", "GPU-A", "/devices/usb1/1-1", "/devices/usb1/1-1/tty"),
    *("/usb/1:2:S/x", "/usb/1:2:S@1-1/x", "/port/1-1/x", "by port 1-1"),
)


def expected(scenario: Scenario) -> set[tuple[str, str]]:
    """Which devices are held back: of all that are held or cordoned, and all free ones by name."""
    resources = sorted(scenario.manager.resources.values(), key=lambda resource: resource.name)
    return set(winners(_claims(resources), _offers(resources)))


def _claims(resources: Sequence[Resource]) -> Iterator[Claim]:
    for resource in resources:
        for device_id, identity in resource.identities.claimed().items():
            is_listed = resource.reported(device_id) is not None
            yield Claim((resource.name, device_id), identity, resource.scoped_parent(device_id), is_listed)


def _offers(resources: Sequence[Resource]) -> Iterator[Claim]:
    for resource in resources:
        for device, ids in resource.identities.said.kinds.values():
            for device_id in resource.use.free_of(ids):
                identity = Identity(device.identity, device.is_shared)
                yield Claim((resource.name, device_id), identity, resource.scoped_parent(device_id))


_DEVICES = st.lists(
    st.builds(
        Device,
        st.sampled_from("abc"),
        identity=st.lists(st.sampled_from(TOKENS), min_size=1, max_size=3, unique=True).map(tuple),
        is_shared=st.booleans(),
    ),
    max_size=3,
    unique_by=lambda device: device.id,
)
_CHANGES = st.one_of(
    st.tuples(st.just("list"), st.sampled_from(NAMES), _DEVICES),
    st.tuples(st.just("cordon"), st.sampled_from(NAMES), st.sampled_from([[], ["a"], ["b", "c"], [ALL_DEVICES]])),
    st.tuples(st.just("run"), st.sampled_from(NAMES), st.integers(0, 9)),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.integers(0, 9)),
    st.tuples(st.just("leave"), st.sampled_from(NAMES), st.none()),
)


@settings(max_examples=examples(300))
@given(st.lists(_CHANGES, min_size=4, max_size=20))
def test_the_same_is_held_back_as_by_comparing_all(changes: list[tuple[str, str, Any]]) -> None:
    scenario, endpoints, numbers = Scenario(), dict[str, int](), count(1)
    for change, name, what in changes:
        if change == "list":
            if name not in endpoints:
                endpoints[name] = next(numbers)
                scenario.answer_all(scenario.connect(name, endpoints[name], OPTIONS))
            scenario.answer_all(scenario.lists(what, name, endpoints[name]))
        elif change == "run":
            scenario.run(pod(f"p{what}", **{"gpu" if name == GPU else "nic": 1}))
        elif change == "end":
            scenario.answer_all(scenario.gone(f"p{what}"))
        elif name in endpoints and change == "cordon":
            scenario.answer_all(scenario.cordon(name, what))
        elif name in endpoints:
            scenario.answer_all(scenario.disconnect(name, endpoints.pop(name)))
        resources = scenario.manager.resources.values()
        assert {(each.name, device_id) for each in resources for device_id in each.use.held_back} == expected(scenario)
