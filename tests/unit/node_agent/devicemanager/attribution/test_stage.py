"""The device manager of a node whose kubelet allocates: events in, effects and allocations out."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, Publish, SaveCheckpoint
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_api.names import DELIVERY_KUBELET, DELIVERY_NRI

from tests.examples import examples
from tests.fakes.settled import Settled, attributed, attributing
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, held_by, pod, published


def mirror(devices: int = 4, **options: Any) -> Any:
    """With a plugin of so many GPUs, and no cordons."""
    found = attributing(0.0, **options)
    if devices:
        plugin(found, devices)
    return found


def plugin(found: Any, devices: int, name: str = GPU) -> Any:
    effects = found.connected(name, 1, PluginOptions(pre_start_required=True), 0.0)
    effects += found.listed(name, 1, accept(Device(f"d{index}") for index in range(devices)), 0.0)
    return effects + found.table.cordoned(name, "object", {}, 0.0)


def message(found: Any, *entries: Allocation, rows: tuple[PodResourcesRow, ...] | None = ()) -> Any:
    found.attribution.is_outdated = False
    return found.attribution.read(KubeletState(entries, rows))


def held(found: Any, name: str = GPU) -> dict[str, tuple[str, ...]]:
    return {a.pod_uid: a.device_ids for a in found.book.of_resource(name)}


def test_a_pod_that_comes_gets_nothing_from_here() -> None:
    found = mirror()
    effects = found.pod_events.synced([pod("one", gpu=1)], 0.0) + found.pod_events.seen(pod("two", gpu=9), 0.0)
    assert not any(isinstance(effect, CallAllocate | CallPreferred | CallPreStart) for effect in effects)
    assert (held(found), found.pending(GPU)) == ({}, [])


@pytest.mark.parametrize("first", ["the kubelet", "the API"])
def test_an_allocation_needs_the_kubelet_and_the_api_in_any_order(first: str) -> None:
    found = mirror()
    found.pod_events.synced([], 0.0)
    effects = message(found, held_by("one", "d1")) if first == "the kubelet" else []
    effects += found.pod_events.seen(pod("one", gpu=1), 0.0)
    effects += message(found, held_by("one", "d1"))
    assert held(found) == {"one": ("d1",)}
    assert GPU in published(effects)
    assert SaveCheckpoint(durable=False) in effects
    seen = snapshot(found, GPU)
    assert (seen.total, seen.allocated, seen.available) == (4, 1, 3)


@pytest.mark.parametrize("how", ["over", "gone", "not in the list"])
def test_the_end_of_a_pod_is_the_apis_word(how: str) -> None:
    found = mirror()
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    entry = held_by("one", "d0")
    message(found, entry, rows=(PodResourcesRow("default", "one", "main", GPU, ("d0",)),))
    assert not found.attribution.is_outdated
    match how:
        case "over":
            effects = found.pod_events.seen(pod("one", gpu=1, has_ended=True), 0.0)
        case "gone":
            effects = found.pod_events.gone("one", 0.0)
        case _:
            effects = found.pod_events.synced([], 0.0)
    assert held(found) == {}
    assert published(effects) == {GPU}
    assert found.attribution.is_outdated
    # the kubelet keeps the entry, and for a moment even the name
    message(found, entry, rows=(PodResourcesRow("default", "one", "main", GPU, ("d0",)),))
    assert held(found) == {}


@pytest.mark.parametrize("devices", [4, 0], ids=["the plugin first", "the plugin last"])
def test_a_pod_that_was_over_before_the_kubelet_was_read_holds_nothing(devices: int) -> None:
    found = mirror(devices)
    found.pod_events.synced([pod("one", gpu=1, has_ended=True)], 0.0)
    message(found, held_by("one", "d0"), rows=(PodResourcesRow("default", "one", "main", GPU, ("d0",)),))
    if not devices:
        plugin(found, 4)
    assert held(found) == {}


def plain(checkpoint: Checkpoint) -> Any:
    """Of a node that only records."""
    manager = DeviceManager(0.0, checkpoint)
    return Settled(manager, manager.settle)


def delivered(found: Any) -> dict[str, str]:
    return {a.pod_uid: a.delivery for a in found.book.of_resource(GPU)}


HASH = "0123456789abcdef0123456789abcdef"
STATIC = held_by(HASH, "d0")
NAMED = (PodResourcesRow("default", "static", "main", GPU, ("d0",)),)


def mirror_pod(uid: str, name: str = "static") -> Pod:
    """An object with these annotations, whoever has made it."""
    return replace(pod(uid, gpu=1), name=name, config_hash=HASH)


class TestStaticPods:
    """The kubelet has a UID of its own for them, and the names for it; the annotation of a pod proves nothing."""

    @pytest.mark.parametrize("order", [["mirror", "evil"], ["evil", "mirror"]])
    def test_they_are_shown_by_the_uid_of_the_mirror_pod_of_their_name(self, order: list[str]) -> None:
        found = mirror()
        objects = {"mirror": mirror_pod("mirror"), "evil": mirror_pod("evil", "evil")}
        found.pod_events.synced([objects[name] for name in order], 0.0)
        message(found, STATIC, rows=NAMED)
        assert held(found) == {"mirror": ("d0",)}
        found.pod_events.gone("evil", 0.0)
        assert held(found) == {"mirror": ("d0",)}
        found.pod_events.synced([objects["mirror"]], 0.0)
        assert held(found) == {"mirror": ("d0",)}

    def test_without_a_mirror_pod_they_are_shown_by_the_uid_of_the_kubelet(self) -> None:
        found = mirror()
        found.pod_events.synced([mirror_pod("evil", "evil")], 0.0)
        message(found, STATIC, rows=NAMED)
        assert held(found) == {HASH: ("d0",)}
        found.pod_events.gone("evil", 0.0)
        assert held(found) == {HASH: ("d0",)}
        found.pod_events.seen(mirror_pod("mirror"), 0.0)
        assert held(found) == {"mirror": ("d0",)}

    @pytest.mark.parametrize("is_listed", [True, False])
    def test_their_end_is_that_of_the_mirror_pod(self, is_listed: bool) -> None:
        found = mirror()
        found.pod_events.synced([mirror_pod("mirror")], 0.0)
        message(found, STATIC, rows=NAMED)
        if is_listed:
            found.pod_events.synced([], 0.0)
        else:
            found.pod_events.gone("mirror", 0.0)
        # the kubelet keeps the entry, and for a moment even the name
        message(found, STATIC, rows=NAMED)
        assert held(found) == {}
        found.pod_events.seen(mirror_pod("again"), 0.0)
        assert held(found) == {"again": ("d0",)}

    def test_the_first_hash_of_an_object_stays(self) -> None:
        found = mirror()
        found.pod_events.synced([mirror_pod("mirror")], 0.0)
        message(found, STATIC, rows=NAMED)
        found.pod_events.seen(replace(mirror_pod("mirror"), config_hash="f" * 32), 0.0)
        assert held(found) == {"mirror": ("d0",)}

    def test_while_the_kubelet_has_no_names_they_hold_their_devices_without_one(self) -> None:
        found = mirror()
        found.pod_events.synced([mirror_pod("evil", "evil"), mirror_pod("mirror")], 0.0)
        message(found, STATIC, rows=None)
        assert held(found) == {HASH: ("d0",)}
        assert found.pod(HASH) is None


def test_a_pod_that_the_api_does_not_have_yet_holds_on() -> None:
    found = mirror()
    for _ in range(2):
        found.pod_events.synced([], 0.0)
        rows = (PodResourcesRow("default", "early", "main", GPU, ("d0",)),)
        message(found, held_by("early", "d0"), rows=rows)
        assert held(found) == {"early": ("d0",)}
    found.pod_events.synced([], 0.0)
    assert held(found) == {"early": ("d0",)}


def test_an_end_that_comes_while_the_kubelet_is_asked_makes_its_answer_outdated() -> None:
    found = mirror()
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    message(found, held_by("one", "d0"))
    found.attribution.is_outdated = False
    found.pod_events.gone("one", 0.0)
    found.attribution.read(KubeletState((held_by("one", "d0"),), ()))
    assert found.attribution.is_outdated


@pytest.mark.parametrize(
    "silence", [KubeletState(None, None), KubeletState((held_by("one", "d0"), held_by("late", "d1")), None)]
)
def test_the_last_state_stays_while_nothing_can_be_read(silence: KubeletState) -> None:
    found = mirror()
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    rows = (PodResourcesRow("default", "late", "main", GPU, ("d1",)),)
    message(found, held_by("one", "d0"), held_by("late", "d1"), rows=rows)
    assert found.attribution.read(silence) == []
    assert held(found) == {"one": ("d0",), "late": ("d1",)}


def test_a_resource_that_the_kubelet_knew_before_its_plugin_came_here() -> None:
    found = mirror(0)
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    message(found, held_by("one", "d0"), held_by("other", "x", name=NIC))
    assert found.resources == {}
    effects = plugin(found, 2)
    assert held(found) == {"one": ("d0",)}
    assert published(effects) == {GPU}


class TestRestart:
    def test_allocations_of_the_checkpoint_stay_until_the_kubelet_is_read(self) -> None:
        before = mirror()
        before.pod_events.synced([pod("one", gpu=1), pod("two", gpu=1)], 0.0)
        message(before, held_by("one", "d0"), held_by("two", "d1"))
        found = attributing(0.0, before.checkpoint())
        assert held(found) == {"one": ("d0",), "two": ("d1",)}
        assert [view.pod for view in snapshot(found, GPU).held] == [None, None]
        found.pod_events.synced([pod("one", gpu=1)], 0.0)
        assert held(found) == {"one": ("d0",)}
        message(found, held_by("one", "d3"))
        assert held(found) == {"one": ("d3",)}

    def test_calls_of_pre_start_container_that_another_runtime_owed_are_not_made(self) -> None:
        checkpoint = Checkpoint((held_by("one", "d0"),), {GPU: ()}, pre_starts=(("one", "main", GPU),))
        found = attributing(0.0, checkpoint)
        effects = found.pod_events.synced([pod("one", gpu=1)], 0.0) + plugin(found, 2)
        assert not any(isinstance(effect, CallPreStart) for effect in effects)
        assert found.checkpoint().pre_starts == ()

    def test_a_response_that_another_runtime_lost_is_not_needed(self) -> None:
        found = attributing(0.0, Checkpoint((held_by("one", "d0", response=None),), {GPU: ()}))
        effects = found.pod_events.synced([pod("one", gpu=1)], 0.0) + plugin(found, 2)
        assert not any(isinstance(effect, CallAllocate) for effect in effects)
        assert held(found) == {"one": ("d0",)}

    def test_a_lost_checkpoint_is_of_the_resources_only(self) -> None:
        found = mirror(0, is_recovering=True)
        message(found, held_by("one", "d0"))
        found.recovered(Checkpoint((held_by("one", "d2"),), {NIC: ()}), 0.0)
        assert not found.is_recovering
        assert set(found.resources) == {GPU, NIC}
        found.pod_events.synced([pod("one", gpu=1)], 0.0)
        assert held(found) == {"one": ("d0",)}

    def test_a_lost_checkpoint_keeps_what_the_kubelet_did_not_allocate(self) -> None:
        """Right after a move from nri: the kubelet does not know these holders, and must not allocate their devices."""
        found = mirror(0, is_recovering=True)
        message(found, *(replace(a, delivery=DELIVERY_KUBELET) for a in (held_by("one", "d0"), held_by("ended", "d1"))))
        plugin(found, 3)
        recovered = (held_by("one", "d0"), held_by("injected", "d1"), held_by("gone", "d2"))
        found.recovered(Checkpoint(tuple(replace(a, delivery=DELIVERY_KUBELET) for a in recovered), {GPU: ()}), 0.0)
        found.pod_events.synced([pod("one", gpu=1), pod("injected", gpu=1)], 0.0)
        assert held(found) == {"one": ("d0",), "injected": ("d1",)}
        assert delivered(found) == {"one": DELIVERY_KUBELET, "injected": DELIVERY_NRI}
        found.pod_events.gone("injected", 0.0)
        assert held(found) == {"one": ("d0",)}

    def test_what_the_kubelet_reports_later_is_its_own(self) -> None:
        found = mirror(3, is_recovering=True)
        found.recovered(Checkpoint((held_by("one", "d0"), held_by("mirror", "d1")), {GPU: ()}), 0.0)
        found.pod_events.synced([pod("one", gpu=1), mirror_pod("mirror")], 0.0)
        assert delivered(found) == {"one": DELIVERY_NRI, "mirror": DELIVERY_NRI}
        entries = (replace(held_by(uid, i), delivery=DELIVERY_KUBELET) for uid, i in {"one": "d0", HASH: "d1"}.items())
        message(found, *entries, rows=(PodResourcesRow("default", "static", "main", GPU, ("d1",)),))
        assert held(found) == {"one": ("d0",), "mirror": ("d1",)}
        assert delivered(found) == {"one": DELIVERY_KUBELET, "mirror": DELIVERY_KUBELET}

    def test_what_the_kubelet_has_reported_before_the_api_stays(self) -> None:
        found = mirror(3, is_recovering=True)
        named = tuple(
            PodResourcesRow("default", uid, "main", GPU, (i,)) for uid, i in {"one": "d0", "two": "d1"}.items()
        )
        message(found, held_by("one", "d0"), held_by("two", "d1"), rows=named)
        found.recovered(Checkpoint((held_by("one", "d2"), held_by("three", "d1")), {GPU: ()}), 0.0)
        found.pod_events.synced([pod(uid, gpu=1) for uid in ("one", "two", "three")], 0.0)
        assert held(found) == {"one": ("d0",), "two": ("d1",)}

    @pytest.mark.parametrize("how", ["in the list", "seen later"])
    @pytest.mark.parametrize("is_by_kubelet", [True, False], ids=["kubelet", "none"])
    def test_a_static_pod_keeps_what_it_got_by_nri(self, how: str, is_by_kubelet: bool) -> None:
        """There it has its hash as UID; here that of its mirror pod."""
        known = (StaticPod(HASH, "default", "static"),)
        checkpoint = Checkpoint((replace(STATIC, delivery=DELIVERY_NRI),), {GPU: ()}, static_pods=known)
        found = attributing(0.0, checkpoint) if is_by_kubelet else plain(checkpoint)
        plugin(found, 2)
        evil = mirror_pod("evil", "evil")
        if how == "in the list":
            found.pod_events.synced([evil, mirror_pod("mirror")], 0.0)
        else:
            found.pod_events.seen(mirror_pod("mirror"), 0.0)
            found.pod_events.seen(evil, 0.0)
        assert held(found) == {"mirror": ("d0",)}
        again = Settled(after := attributed(0.0, found.checkpoint()), after.settle)
        again.pod_events.synced([mirror_pod("mirror")], 0.0)
        message(again)
        assert (held(again), delivered(again)) == ({"mirror": ("d0",)}, {"mirror": DELIVERY_NRI})


UIDS = [f"p{index}" for index in range(4)]
IDS = [f"d{index}" for index in range(3)]


class Kubelet(RuleBasedStateMachine):
    """A kubelet that gives out, forgets late and is heard late; pods that come and go in the API; restarts of the agent."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror = mirror(len(IDS))
        self.mirror.pod_events.synced([], 0.0)
        self.pods: set[str] = set()
        self.gone: set[str] = set()
        self.entries: dict[str, str] = {}
        self.observed: dict[str, str] = {}
        self.is_synced = True

    @rule(uid=st.sampled_from(UIDS))
    def comes(self, uid: str) -> None:
        if uid not in self.gone:
            self.pods.add(uid)
            self.mirror.pod_events.seen(pod(uid, gpu=1), 0.0)

    @rule(uid=st.sampled_from(UIDS), device_id=st.sampled_from(IDS))
    def is_admitted(self, uid: str, device_id: str) -> None:
        """The kubelet forgets finished pods, and allocates a free device."""
        self.entries = {u: d for u, d in self.entries.items() if u not in self.gone}
        if uid in self.pods and uid not in self.entries and device_id not in self.entries.values():
            self.entries[uid] = device_id

    @rule()
    def is_observed(self) -> None:
        self.observed = dict(self.entries)
        message(self.mirror, *(held_by(uid, device_id) for uid, device_id in self.entries.items()))

    @rule(uid=st.sampled_from(UIDS), is_over_first=st.booleans())
    def ends(self, uid: str, is_over_first: bool) -> None:
        if uid in self.pods:
            self.pods.discard(uid)
            self.gone.add(uid)
            if is_over_first:
                self.mirror.pod_events.seen(pod(uid, gpu=1, has_ended=True), 0.0)
            else:
                self.mirror.pod_events.gone(uid, 0.0)

    @rule()
    def api_lists_again(self) -> None:
        self.mirror.pod_events.synced([pod(uid, gpu=1) for uid in self.pods], 0.0)

    @rule()
    def agent_restarts(self) -> None:
        self.mirror = attributing(0.0, self.mirror.checkpoint())
        self.is_observed()
        self.api_lists_again()
        plugin(self.mirror, len(IDS))

    @invariant()
    def shows_what_was_observed_of_pods_that_go_on(self) -> None:
        expected = {uid: (device_id,) for uid, device_id in self.observed.items() if uid in self.pods}
        assert held(self.mirror) == expected

    @invariant()
    def numbers_add_up(self) -> None:
        seen = snapshot(self.mirror, GPU)
        assert seen.allocated + seen.releasing + seen.available == seen.total == len(IDS)


Kubelet.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestKubelet = Kubelet.TestCase


def test_publishes_are_of_resources_that_changed_alone() -> None:
    found = mirror()
    plugin(found, 2, NIC)
    found.pod_events.synced([pod("one", gpu=1)], 0.0)
    effects = message(found, held_by("one", "d0"))
    assert [effect for effect in effects if isinstance(effect, Publish)] == [Publish(GPU)]
