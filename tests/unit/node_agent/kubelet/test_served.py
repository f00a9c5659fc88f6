"""What the kubelet serves, as its pod resources, its checkpoint and the Node's capacity show it."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.effects import Publish
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.presence import STOP_GRACE_PERIOD_SECONDS, EndpointState
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.kubelet import codec
from nodedevice_agent.kubelet.readings import NO_DEVICES, DevicesByID, PodReading
from nodedevice_agent.kubelet.served import MAX_DEVICES_IN_LOOP, KubeletDevices, devices_of
from nodedevice_api.names import Reason
from nodedevice_api.nodedevice import DeviceStatus
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2

from tests.fakes.settled import observing
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, pod


def devices(*ids: str, name: str = GPU) -> KubeletDevices:
    return KubeletDevices({name: dict.fromkeys(ids, (0,))})


def allocation(pod_uid: str, *ids: str) -> Allocation:
    return Allocation(pod_uid, "c0", GPU, {0: ids}, b"")


def row(name: str, *ids: str) -> PodResourcesRow:
    return PodResourcesRow("default", name, "c0", GPU, ids)


def read(found: Any, healthy: KubeletDevices, *held: tuple[str, str]) -> Any:
    """held: pod and the device that it holds, by name."""
    entries = tuple(allocation(name, device) for name, device in held)
    return found.read(healthy, KubeletState(entries, tuple(row(name, device) for name, device in held)), 0.0)


def with_pod() -> Any:
    """The API has shown pod one, which asks for a GPU, and no other."""
    found = observing()
    found.pods_synced([pod("one", gpu=1)], 0.0)
    return found


def shown(seen: Snapshot) -> dict[str, str]:
    """Health, or the reason against it, by device ID."""
    return {device.id: "Healthy" if device.healthy else device.reason for device in seen.devices}


def numbers(seen: Snapshot) -> tuple[int, int, int, int]:
    return seen.total, seen.healthy, seen.allocated, seen.available


def test_devices_and_holders_are_the_kubelets() -> None:
    found = with_pod()
    assert Publish(GPU) in read(found, devices("a", "b"), ("one", "a"))
    seen = found.snapshot(GPU)
    assert (numbers(seen), shown(seen)) == ((2, 2, 1, 1), {"a": "Healthy", "b": "Healthy"})
    assert [(v.allocation.pod_uid, v.allocation.device_ids) for v in seen.held] == [("one", ("a",))]
    assert seen.devices[0].numa_nodes == (0,)


@pytest.mark.parametrize(
    ("registered", "listed", "made"),
    [
        pytest.param(None, None, KubeletDevices({GPU: {"a": (1,)}}, are_names_complete=False), id="nothing is known"),
        pytest.param(None, {NIC: {}}, KubeletDevices({NIC: {}}, are_names_complete=False), id="no checkpoint"),
        pytest.param({GPU: ("a", "b"), NIC: ()}, None, KubeletDevices({GPU: {"a": (1,), "b": ()}, NIC: {}}), id="old"),
        pytest.param({GPU: "a", NIC: "n"}, {GPU: {"b": ()}}, KubeletDevices({NIC: {}, GPU: {"b": ()}}), id="both"),
    ],
)
def test_what_a_reading_says_of_devices(
    registered: dict[str, tuple[str, ...]] | None, listed: dict[str, DevicesByID] | None, made: KubeletDevices
) -> None:
    checkpoint = Checkpoint(registered=registered) if registered is not None else None
    assert devices_of(PodReading(checkpoint, (), devices=listed), {GPU: {"a": (1,)}}) == made


def many(count: int) -> dict[str, dict[str, tuple[int, ...]]]:
    return {f"example.com/r{number:03}": {"a": ()} for number in range(count)}


def test_a_name_that_has_lost_its_place_is_shown_again_when_it_was_forgotten_and_has_one() -> None:
    found = observing()
    found.pods_synced([], 0.0)
    read(found, KubeletDevices(many(2)))
    lost = "example.com/r001"
    assert Publish(lost) in found.displaced([lost], "example.com/new", 0.0)
    for _ in range(2):
        assert read(found, KubeletDevices(many(2))) == []
    seen = found.snapshot(lost)
    assert (seen.state, seen.total, seen.lost_to) == (EndpointState.GONE, 0, "example.com/new")
    assert found.forget(lost)
    assert Publish(lost) in read(found, KubeletDevices(many(2)))
    assert found.snapshot(lost).lost_to is None


def test_nothing_is_published_when_nothing_changed() -> None:
    found = with_pod()
    read(found, devices("a", "b"), ("one", "a"))
    assert not [e for e in read(found, devices("b", "a"), ("one", "a")) if isinstance(e, Publish)]


def test_a_device_that_was_healthy_or_is_held_is_lost_and_not_gone() -> None:
    found = with_pod()
    read(found, devices("a", "b"))
    read(found, devices("a"), ("one", "z"))
    lost = Reason.NOT_ALLOCATABLE
    assert shown(found.snapshot(GPU)) == {"a": "Healthy", "b": lost, "z": lost}
    read(found, devices("a", "b", "z"), ("one", "z"))
    assert numbers(found.snapshot(GPU)) == (3, 3, 1, 2)


@pytest.mark.parametrize(
    ("capacity", "names", "total"),
    [
        # not read yet, or older than the devices
        pytest.param({}, {"a", "b"}, 2, id="unknown"),
        pytest.param({GPU: 0}, {"a", "b"}, 2, id="old"),
        pytest.param({GPU: 1}, {"a"}, 1, id="its plugin does not list it any more"),
        pytest.param({GPU: 2}, {"a", "b"}, 2, id="it is not healthy"),
        pytest.param({GPU: 5}, {"a", "b"}, 5, id="others were never healthy"),
    ],
)
def test_the_nodes_capacity_says_how_many_are_unhealthy(capacity: dict[str, int], names: set[str], total: int) -> None:
    found = observing()
    read(found, devices("a", "b"))
    read(found, devices("a"))
    found.capacity_is(capacity, 0.0)
    seen = found.snapshot(GPU)
    assert (set(shown(seen)), seen.total, seen.healthy) == (names, total, 1)


def test_devices_that_were_lost_before_a_restart_are_known() -> None:
    found = observing()
    read(found, devices("a"))
    lost = DeviceStatus(id="b", health="Unhealthy", reason=Reason.NOT_ALLOCATABLE)
    found.remember_published(GPU, [lost, DeviceStatus(id="c", health="Healthy")], 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy", "b": Reason.NOT_ALLOCATABLE}
    # once: what was published later is what was found here
    found.capacity_is({GPU: 1}, 0.0)
    found.remember_published(GPU, [lost], 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy"}
    found.capacity_is({GPU: 9}, 0.0)
    found.remember_published(GPU, [lost], 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy"}


def test_a_resource_without_healthy_devices_is_the_kubelets_while_its_checkpoint_names_it() -> None:
    found = observing()
    read(found, devices("a"))
    read(found, devices())
    assert (numbers(found.snapshot(GPU)), found.snapshot(GPU).is_live) == ((1, 0, 0, 0), True)
    read(found, KubeletDevices({}))
    assert not found.snapshot(GPU).is_live
    assert not found.forget(GPU)
    found.tick(STOP_GRACE_PERIOD_SECONDS)
    assert found.forget(GPU)


def test_without_a_checkpoint_no_resource_is_given_up() -> None:
    found = observing()
    read(found, devices("a"))
    found.read(KubeletDevices({}, are_names_complete=False), KubeletState(None, ()), 0.0)
    assert found.snapshot(GPU).is_live


def test_a_pod_that_ends_holds_nothing_whatever_the_kubelet_has() -> None:
    found = with_pod()
    read(found, devices("a"), ("one", "a"))
    assert Publish(GPU) in found.pod_gone("one", 0.0)
    assert (found.snapshot(GPU).allocated, found.manager.attribution.is_outdated) == (0, True)


def messages(seen: Snapshot) -> dict[str, str]:
    return {device.id: device.message for device in seen.devices if not device.healthy}


def test_the_status_of_a_pod_says_whose_word_it_is() -> None:
    found = observing()
    read(found, devices("a"), ("one", "z"))
    holder = pod("one", gpu=1)
    found.pod_seen(holder, 0.0)
    assert "or is not connected" in messages(found.snapshot(GPU))["z"]
    assert Publish(GPU) in found.pod_seen(replace(holder, unhealthy=frozenset({(GPU, "z"), (NIC, "y")})), 0.0)
    assert "allocatedResourcesStatus" in messages(found.snapshot(GPU))["z"]
    # the kubelet's own list is newer
    read(found, devices("a", "z"), ("one", "z"))
    assert shown(found.snapshot(GPU)) == {"a": "Healthy", "z": "Healthy"}
    assert not found.pod_seen(replace(holder, unhealthy=frozenset()), 0.0)


@pytest.mark.parametrize("has_object", [True, False])
def test_a_device_in_the_status_of_a_pod_alone_is_shown(has_object: bool) -> None:
    """As of an init container, where the kubelet's checkpoint cannot be read. has_object: the API keeps the ended pod."""
    found = observing()
    read(found, devices("a"))
    over = replace(pod("two", gpu=1, has_ended=True), unhealthy=frozenset({(GPU, "y")}))
    found.pods_synced([over], 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy"}
    one = replace(pod("one", gpu=1), unhealthy=frozenset({(GPU, "z")}))
    found.pods_synced([one], 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy", "z": Reason.NOT_ALLOCATABLE}
    found.capacity_is({GPU: 1}, 0.0)
    if has_object:
        found.pod_seen(replace(one, has_ended=True), 0.0)
    else:
        found.pod_gone("one", 0.0)
    assert shown(found.snapshot(GPU)) == {"a": "Healthy"}


def test_names_that_no_extended_resource_has_are_left_out() -> None:
    found = observing()
    read(found, devices("a", name="no-domain"))
    read(found, devices("a", name="kubernetes.io/gpu"))
    assert not found.resources


@settings(deadline=None)
class Kubelet(RuleBasedStateMachine):
    """Any kubelet, in any order with the API: every device has one holder, numbers add up, nothing is counted twice."""

    def __init__(self) -> None:
        super().__init__()
        self.found = observing()
        self.held: dict[str, str] = {}

    @rule(healthy=st.sets(st.sampled_from("abcdef")), names=st.sampled_from([(GPU,), (GPU, NIC), ()]))
    def look(self, healthy: set[str], names: tuple[str, ...]) -> None:
        read(self.found, KubeletDevices({name: dict.fromkeys(healthy, ()) for name in names}), *self.held.items())

    @rule(uid=st.sampled_from(["one", "two", "three"]), device=st.sampled_from("abcdef"))
    def allocate(self, uid: str, device: str) -> None:
        self.held[uid] = device
        self.found.pod_seen(pod(uid, gpu=1), 0.0)

    @rule(uid=st.sampled_from(["one", "two", "three"]))
    def end(self, uid: str) -> None:
        self.held.pop(uid, None)
        self.found.pod_gone(uid, 0.0)

    @rule(number=st.integers(0, 9))
    def capacity(self, number: int) -> None:
        self.found.capacity_is({GPU: number, NIC: number}, 0.0)

    @rule(seconds=st.sampled_from([1.0, 400.0]))
    def tick(self, seconds: float) -> None:
        self.found.tick(seconds)

    @invariant()
    def adds_up(self) -> None:
        for name in self.found.resources:
            seen: Any = self.found.snapshot(name)
            assert seen.total >= len(seen.devices) >= seen.healthy
            assert seen.available + seen.allocated + seen.releasing <= seen.total
            ids = [i for view in seen.held for i in view.allocation.device_ids]
            assert len(ids) == len(set(ids))


TestKubelet = Kubelet.TestCase


class Lists:
    """What the kubelet lists, decoded with what is known of the last reading."""

    def __init__(self) -> None:
        self.known = NO_DEVICES

    def of(self, held: Mapping[str, Collection[str]], gpus: Sequence[str], nics: Sequence[str] = ()) -> KubeletDevices:
        listed = [*((GPU, device_id) for device_id in gpus), *((NIC, device_id) for device_id in nics)]
        entries = [api_pb2.ContainerDevices(resource_name=name, device_ids=[each]) for name, each in listed]
        octets = api_pb2.AllocatableResourcesResponse(devices=entries).SerializeToString()
        self.known = codec.healthy_devices(octets, self.known, held)
        return KubeletDevices(self.known.devices, omitted=self.known.omitted)


def test_of_lists_that_are_too_long_together_the_rest_is_counted_as_healthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a device that a pod holds is known by its ID, wherever it stands in the list."""
    monkeypatch.setattr(codec, "MAX_DEVICES_OF_KUBELET", 600)
    found, lists, held = with_pod(), Lists(), {GPU: {"499"}}
    ids = [f"{number:03}" for number in range(500)]
    # the kubelet lists them in another order each time
    for listed in (ids, ids[::-1], ids[100:] + ids[:100]):
        read(found, lists.of(held, listed, ids), ("one", "499"))
        seen = found.snapshot(GPU)
        assert numbers(seen) == (500, 500, 1, 499)
        assert (seen.unhealthy, shown(seen)) == ((), {"499": "Healthy"})
        assert "300 devices are known by ID, and 200 by their number" in seen.id_error
        assert found.snapshot(NIC).healthy == 500
    # One of the known devices is lost, and one of the others, which shows in the Node's capacity.
    found.capacity_is({GPU: 500}, 0.0)
    read(found, lists.of(held, ids[1:-2] + ids[-1:], ids), ("one", "499"))
    seen = found.snapshot(GPU)
    assert numbers(seen)[:2] == (500, 498)
    assert shown(seen) == {"000": Reason.NOT_ALLOCATABLE, "499": "Healthy"}
    # With room again, all are known.
    read(found, lists.of(held, ids), ("one", "499"))
    assert (len(found.resources[GPU].devices), found.snapshot(GPU).id_error) == (500, "")


def test_a_list_of_which_pods_hold_thousands_is_made_in_a_thread() -> None:
    """Also where the kubelet lists none of them, and before the resource is known."""
    found, ids = with_pod(), [f"d{number}" for number in range(MAX_DEVICES_IN_LOOP + 1)]
    found.read(devices(), KubeletState((allocation("one", *ids),), (row("one", *ids),)), 0.0)
    assert found.resources[GPU].listed.ids == ()
    listing = found.next_listing()
    assert listing is not None
    found.listing_made(listing, listing.made(), 0.0)
    assert len(found.resources[GPU].listed.ids) == len(ids)
    assert found.next_listing() is None
