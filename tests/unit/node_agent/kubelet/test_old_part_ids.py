"""A kubelet that still has parts by the IDs of an earlier release: none of them is offered under its new ID before its pod ends."""

from typing import Any

import pytest
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.kubelet.advertised import advertised, select_preferred
from nodedevice_agent.lib.deviceplugin_server.values import old_form
from nodedevice_api.parts import PartRules, parent_and_number, part_id

from tests.fakes.settled import attributing
from tests.unit.node_agent.devicemanager.scenario import GPU, held_by, pod

PARENTS, COUNT = ("GPU-a", "GPU-b"), 4
# a part by its GPU and its number, whatever it is called
Part = tuple[str, int]
EVERY = {(parent, number) for parent in PARENTS for number in range(COUNT)}


def part(parent: str, number: int) -> Device:
    own = part_id(parent, number)
    return Device(own, parent=parent, identity=(f"gpu:{parent}",), is_shared=True, aliases=old_form(own))


def agent(checkpoint: Checkpoint | None = None) -> Any:
    found = attributing(0.0, checkpoint)
    found.pod_events.synced([pod(uid, gpu=1) for uid in ("one", "two", "three")], 0.0)
    return found


def plugin(found: Any, *cordons: str) -> None:
    """It registers and lists the parts by their new IDs."""
    found.connected(GPU, 1, PluginOptions(scope="built-in nvml"), 0.0)
    parents = {name: Device(name, part_size="1Gi") for name in PARENTS}
    listed = accept((part(*each) for each in sorted(EVERY)), part_rules=PartRules(), parents=parents)
    found.listed(GPU, 1, listed, 0.0)
    cordon(found, *cordons)


def cordon(found: Any, *device_ids: str) -> None:
    found.table.cordoned(GPU, "object", dict.fromkeys(device_ids, Cordon()), 0.0)


def entries(**held: str) -> tuple[Allocation, ...]:
    return tuple(held_by(uid, device_id) for uid, device_id in held.items())


def rows(**held: str) -> tuple[PodResourcesRow, ...]:
    return tuple(PodResourcesRow("default", uid, "main", GPU, (device_id,)) for uid, device_id in held.items())


def kubelet(found: Any, **held: str) -> None:
    """It has this part for each pod, as both of its records say."""
    found.attribution.read(KubeletState(entries(**held), rows(**held)))


def offered(found: Any, **held: str) -> set[Part]:
    """What the kubelet gives to the next pod: advertised as healthy, and in none of its own records."""
    listed = advertised(found.resources[GPU])
    assert listed is not None
    free = [device.id for device in listed.devices if device.is_healthy and device.id not in held.values()]
    assert sorted(select_preferred(found.resources[GPU], found.topology, free, (), len(free)).pool) == sorted(free)
    return {each for each in map(parent_and_number, free) if each is not None}


def advertises(found: Any, device_id: str) -> bool:
    """Whether the kubelet would start its container again."""
    listed = advertised(found.resources[GPU])
    return listed is not None and any(device.id == device_id and device.is_healthy for device in listed.devices)


STATES = {
    "both records": KubeletState(entries(one="GPU-a-1"), rows(one="GPU-a-1")),
    "its checkpoint alone": KubeletState(entries(one="GPU-a-1"), None),
    "its pod resources alone": KubeletState(None, rows(one="GPU-a-1")),
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("first", ["the kubelet", "the plugin"])
def test_a_part_that_is_held_by_its_old_id_is_not_offered_by_its_new_one(state: str, first: str) -> None:
    found = agent()
    if first == "the plugin":
        plugin(found)
    found.attribution.read(STATES[state])
    if first == "the kubelet":
        plugin(found)
    found.attribution.read(STATES[state])
    assert offered(found, one="GPU-a-1") == EVERY - {("GPU-a", 1)}
    assert advertises(found, "GPU-a-1")
    found.pod_events.gone("one", 0.0)
    assert offered(found) == EVERY
    assert advertises(found, "GPU-a::1")


def test_the_agents_own_checkpoint_is_enough_while_the_kubelet_cannot_be_read() -> None:
    found = agent(Checkpoint(allocations=entries(one="GPU-a-1"), registered={GPU: ()}))
    plugin(found)
    assert offered(found, one="GPU-a-1") == EVERY - {("GPU-a", 1)}


def test_pods_with_old_and_new_ids_on_one_gpu_have_a_part_each() -> None:
    """The kubelet gave out a new ID before it could be read."""
    found = agent()
    plugin(found)
    held = {"one": "GPU-a-1", "two": "GPU-a::2", "three": "GPU-b::0"}
    kubelet(found, **held)
    assert offered(found, **held) == EVERY - {("GPU-a", 1), ("GPU-a", 2), ("GPU-b", 0)}
    assert all(advertises(found, device_id) for device_id in held.values())
    # whoever ends first
    del held["two"]
    found.pod_events.gone("two", 0.0)
    kubelet(found, **held)
    assert offered(found, **held) == EVERY - {("GPU-a", 1), ("GPU-b", 0)}
    del held["one"]
    found.pod_events.gone("one", 0.0)
    kubelet(found, **held)
    assert offered(found, **held) == EVERY - {("GPU-b", 0)}
    assert found.resources[GPU].devices.keys() == {part(*each).id for each in EVERY}


@pytest.mark.parametrize("cordons", [("GPU-a-3",), ("GPU-a::3",), ("GPU-a-3", "GPU-a::3")])
def test_a_cordon_counts_by_either_id(cordons: tuple[str, ...]) -> None:
    found = agent()
    plugin(found, *cordons)
    kubelet(found, one="GPU-a-1")
    assert offered(found, one="GPU-a-1") == EVERY - {("GPU-a", 1), ("GPU-a", 3)}
    assert not found.resources[GPU].use.unknown_cordons()
    found.pod_events.gone("one", 0.0)
    assert offered(found) == EVERY - {("GPU-a", 3)}
    cordon(found)
    assert offered(found) == EVERY


@pytest.mark.parametrize("cordons", [("GPU-a-1",), ("GPU-a::1",), ("GPU-a-1", "GPU-a::1"), ("GPU-a",)])
def test_a_held_part_that_is_cordoned_stays_its_pods(cordons: tuple[str, ...]) -> None:
    found = agent()
    plugin(found)
    kubelet(found, one="GPU-a-1")
    cordon(found, *cordons)
    gone = {("GPU-a", 1)} if cordons != ("GPU-a",) else {each for each in EVERY if each[0] == "GPU-a"}
    assert offered(found, one="GPU-a-1") == EVERY - gone
    # the kubelet would refuse to start its container again
    assert advertises(found, "GPU-a-1")
    found.pod_events.gone("one", 0.0)
    assert offered(found) == EVERY - gone
