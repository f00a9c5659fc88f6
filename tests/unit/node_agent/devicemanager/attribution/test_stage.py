"""The device manager of a node whose kubelet allocates: events in, effects and allocations out."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec.structs import replace
from nodedevice_agent.devicemanager.attribution.attribute import KubeletState, PodResourcesRow
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, Effect, Publish
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.static_pods import StaticPod
from nodedevice_api.names import DELIVERY_KUBELET, DELIVERY_NRI

from tests.examples import examples
from tests.unit.node_agent.devicemanager.pods import GPU, HASH, NIC, mirror_pod, pod
from tests.unit.node_agent.devicemanager.scenario import ENDS, Scenario, held_by, is_saved, published

Rows = tuple[PodResourcesRow, ...]


class Mirror(Scenario):
    """Of a node whose kubelet allocates everything."""

    def __init__(self, checkpoint: Checkpoint | None = None, **options: Any) -> None:
        super().__init__(checkpoint, waits_for_cordons=True, is_attributed=lambda name: True, **options)

    def synced(self, *pods: Pod) -> list[Effect]:
        return self.happens("pod_events.synced", [*pods])

    def message(self, *entries: Allocation, rows: Rows | None = ()) -> list[Effect]:
        """The kubelet is read."""
        self.manager.attribution.is_outdated = False
        return self.happens("attribution.read", KubeletState(entries, rows))


def plugin(found: Scenario, devices: int, name: str = GPU) -> list[Effect]:
    return found.plugin(devices, name, options=PluginOptions(pre_start_required=True)) + found.cordon(name, [])


def mirror(*pods: Pod, devices: int = 4, **options: Any) -> Mirror:
    found = Mirror(**options)
    if devices:
        plugin(found, devices)
    found.synced(*pods)
    return found


def row(name: str, device_id: str = "d0") -> PodResourcesRow:
    return PodResourcesRow("default", name, "main", GPU, (device_id,))


ONE = pod("one", gpu=1)


def delivered(found: Scenario) -> dict[str, str]:
    return {a.pod_uid: a.delivery for a in found.manager.book.of_resource(GPU)}


def test_a_pod_that_comes_gets_nothing_from_here() -> None:
    found = mirror(ONE)
    found.see(pod("two", gpu=9))
    assert not any(isinstance(effect, CallAllocate | CallPreferred | CallPreStart) for effect in found.effects)
    assert (found.held(), found.reasons()) == ({}, {})


@pytest.mark.parametrize("first", ["the kubelet", "the API"])
def test_an_allocation_needs_the_kubelet_and_the_api_in_any_order(first: str) -> None:
    found = mirror()
    effects = found.message(held_by("one", "d1")) if first == "the kubelet" else []
    effects += found.see(ONE) + found.message(held_by("one", "d1"))
    assert found.held() == {"one/main": ("d1",)}
    assert GPU in published(effects)
    assert is_saved(effects, durable=False)
    seen = found.snapshot()
    assert (seen.total, seen.allocated, seen.available) == (4, 1, 3)


@pytest.mark.parametrize("how", ENDS)
def test_the_end_of_a_pod_is_the_apis_word(how: str) -> None:
    found = mirror(ONE)
    found.message(held_by("one", "d0"), rows=(row("one"),))
    assert not found.manager.attribution.is_outdated
    effects = found.ends(ONE, how)
    assert found.held() == {}
    assert published(effects) == {GPU}
    assert found.manager.attribution.is_outdated
    # the kubelet keeps the entry, and for a moment even the name
    found.message(held_by("one", "d0"), rows=(row("one"),))
    assert found.held() == {}


@pytest.mark.parametrize("devices", [4, 0], ids=["the plugin first", "the plugin last"])
def test_a_pod_that_was_over_before_the_kubelet_was_read_holds_nothing(devices: int) -> None:
    found = mirror(replace(ONE, has_ended=True), devices=devices)
    found.message(held_by("one", "d0"), rows=(row("one"),))
    if not devices:
        plugin(found, 4)
    assert found.held() == {}


STATIC = held_by(HASH, "d0")
NAMED = (row("static"),)


MIRROR_POD, EVIL = mirror_pod("mirror"), mirror_pod("evil", name="evil")


class TestStaticPods:
    """The kubelet has a UID of its own for them, and the names for it; the annotation of a pod proves nothing."""

    @pytest.mark.parametrize("order", [(MIRROR_POD, EVIL), (EVIL, MIRROR_POD)])
    def test_they_are_shown_by_the_uid_of_the_mirror_pod_of_their_name(self, order: tuple[Pod, ...]) -> None:
        found = mirror(*order)
        found.message(STATIC, rows=NAMED)
        assert found.held() == {"mirror/main": ("d0",)}
        found.gone("evil")
        assert found.held() == {"mirror/main": ("d0",)}
        found.synced(MIRROR_POD)
        assert found.held() == {"mirror/main": ("d0",)}

    def test_without_a_mirror_pod_they_are_shown_by_the_uid_of_the_kubelet(self) -> None:
        found = mirror(EVIL)
        found.message(STATIC, rows=NAMED)
        assert found.held() == {f"{HASH}/main": ("d0",)}
        found.gone("evil")
        assert found.held() == {f"{HASH}/main": ("d0",)}
        found.see(MIRROR_POD)
        assert found.held() == {"mirror/main": ("d0",)}

    @pytest.mark.parametrize("how", ENDS)
    def test_their_end_is_that_of_the_mirror_pod(self, how: str) -> None:
        found = mirror(MIRROR_POD)
        found.message(STATIC, rows=NAMED)
        found.ends(MIRROR_POD, how)
        # the kubelet keeps the entry, and for a moment even the name
        found.message(STATIC, rows=NAMED)
        assert found.held() == {}
        found.see(mirror_pod("again"))
        assert found.held() == {"again/main": ("d0",)}

    def test_the_first_hash_of_an_object_stays(self) -> None:
        found = mirror(MIRROR_POD)
        found.message(STATIC, rows=NAMED)
        found.see(replace(MIRROR_POD, config_hash="f" * 32))
        assert found.held() == {"mirror/main": ("d0",)}

    def test_while_the_kubelet_has_no_names_they_hold_their_devices_without_one(self) -> None:
        found = mirror(EVIL, MIRROR_POD)
        found.message(STATIC, rows=None)
        assert found.held() == {f"{HASH}/main": ("d0",)}
        assert found.manager.pod(HASH) is None


def test_a_pod_that_the_api_does_not_have_yet_holds_on() -> None:
    found = mirror()
    for _ in range(2):
        found.message(held_by("early", "d0"), rows=(row("early"),))
        assert found.held() == {"early/main": ("d0",)}
        found.synced()
        assert found.held() == {"early/main": ("d0",)}


def test_an_end_that_comes_while_the_kubelet_is_asked_makes_its_answer_outdated() -> None:
    found = mirror(ONE)
    found.message(held_by("one", "d0"))
    found.gone("one")
    found.happens("attribution.read", KubeletState((held_by("one", "d0"),), ()))
    assert found.manager.attribution.is_outdated


@pytest.mark.parametrize("entries", [None, (held_by("one", "d0"), held_by("late", "d1"))])
def test_the_last_state_stays_while_nothing_can_be_read(entries: tuple[Allocation, ...] | None) -> None:
    found = mirror(ONE)
    found.message(held_by("one", "d0"), held_by("late", "d1"), rows=(row("late", "d1"),))
    assert found.happens("attribution.read", KubeletState(entries, None)) == []
    assert found.held() == {"one/main": ("d0",), "late/main": ("d1",)}


def test_a_resource_that_the_kubelet_knew_before_its_plugin_came_here() -> None:
    found = mirror(ONE, devices=0)
    found.message(held_by("one", "d0"), held_by("other", "x", name=NIC))
    assert found.manager.resources == {}
    effects = plugin(found, 2)
    assert found.held() == {"one/main": ("d0",)}
    assert published(effects) == {GPU}


class TestRestart:
    def test_allocations_of_the_checkpoint_stay_until_the_kubelet_is_read(self) -> None:
        before = mirror(ONE, pod("two", gpu=1))
        before.message(held_by("one", "d0"), held_by("two", "d1"))
        found = Mirror(before.manager.checkpoint())
        assert found.held() == {"one/main": ("d0",), "two/main": ("d1",)}
        assert [view.pod for view in found.snapshot().held] == [None, None]
        found.synced(ONE)
        assert found.held() == {"one/main": ("d0",)}
        found.message(held_by("one", "d3"))
        assert found.held() == {"one/main": ("d3",)}

    def test_calls_of_pre_start_container_that_another_runtime_owed_are_not_made(self) -> None:
        found = Mirror(Checkpoint((held_by("one", "d0"),), {GPU: ()}, pre_starts=(("one", "main", GPU),)))
        assert not any(isinstance(effect, CallPreStart) for effect in found.synced(ONE) + plugin(found, 2))
        assert found.manager.checkpoint().pre_starts == ()

    def test_a_response_that_another_runtime_lost_is_not_needed(self) -> None:
        found = Mirror(Checkpoint((held_by("one", "d0", response=None),), {GPU: ()}))
        assert not any(isinstance(effect, CallAllocate) for effect in found.synced(ONE) + plugin(found, 2))
        assert found.held() == {"one/main": ("d0",)}

    def test_a_lost_checkpoint_is_of_the_resources_only(self) -> None:
        found = Mirror(is_recovering=True)
        found.message(held_by("one", "d0"))
        found.happens("recovered", Checkpoint((held_by("one", "d2"),), {NIC: ()}))
        assert not found.manager.is_recovering
        assert set(found.manager.resources) == {GPU, NIC}
        found.synced(ONE)
        assert found.held() == {"one/main": ("d0",)}

    def test_a_lost_checkpoint_keeps_what_the_kubelet_did_not_allocate(self) -> None:
        """Right after a move from nri: the kubelet does not know these holders, and must not allocate their devices."""
        found = Mirror(is_recovering=True)
        found.message(*(replace(a, delivery=DELIVERY_KUBELET) for a in (held_by("one", "d0"), held_by("ended", "d1"))))
        plugin(found, 3)
        recovered = (held_by("one", "d0"), held_by("injected", "d1"), held_by("gone", "d2"))
        known = Checkpoint(tuple(replace(a, delivery=DELIVERY_KUBELET) for a in recovered), {GPU: ()})
        found.happens("recovered", known)
        found.synced(ONE, pod("injected", gpu=1))
        assert found.held() == {"one/main": ("d0",), "injected/main": ("d1",)}
        assert delivered(found) == {"one": DELIVERY_KUBELET, "injected": DELIVERY_NRI}
        found.gone("injected")
        assert found.held() == {"one/main": ("d0",)}

    def test_what_the_kubelet_reports_later_is_its_own(self) -> None:
        found = Mirror(is_recovering=True)
        plugin(found, 3)
        found.happens("recovered", Checkpoint((held_by("one", "d0"), held_by("mirror", "d1")), {GPU: ()}))
        found.synced(ONE, MIRROR_POD)
        assert delivered(found) == {"one": DELIVERY_NRI, "mirror": DELIVERY_NRI}
        entries = (replace(held_by(uid, i), delivery=DELIVERY_KUBELET) for uid, i in {"one": "d0", HASH: "d1"}.items())
        found.message(*entries, rows=(row("static", "d1"),))
        assert found.held() == {"one/main": ("d0",), "mirror/main": ("d1",)}
        assert delivered(found) == {"one": DELIVERY_KUBELET, "mirror": DELIVERY_KUBELET}

    def test_what_the_kubelet_has_reported_before_the_api_stays(self) -> None:
        found = Mirror(is_recovering=True)
        plugin(found, 3)
        found.message(held_by("one", "d0"), held_by("two", "d1"), rows=(row("one"), row("two", "d1")))
        found.happens("recovered", Checkpoint((held_by("one", "d2"), held_by("three", "d1")), {GPU: ()}))
        found.synced(*(pod(uid, gpu=1) for uid in ("one", "two", "three")))
        assert found.held() == {"one/main": ("d0",), "two/main": ("d1",)}

    @pytest.mark.parametrize("how", ["in the list", "seen later"])
    @pytest.mark.parametrize("make", [Mirror, Scenario], ids=["kubelet", "none"])
    def test_a_static_pod_keeps_what_it_got_by_nri(self, how: str, make: Callable[[Checkpoint], Scenario]) -> None:
        """There it has its hash as UID; here that of its mirror pod."""
        known = (StaticPod(HASH, "default", "static"),)
        found = make(Checkpoint((replace(STATIC, delivery=DELIVERY_NRI),), {GPU: ()}, static_pods=known))
        plugin(found, 2)
        if how == "in the list":
            found.happens("pod_events.synced", [EVIL, MIRROR_POD])
        else:
            found.see(MIRROR_POD, EVIL)
        assert found.held() == {"mirror/main": ("d0",)}
        again = Mirror(found.manager.checkpoint())
        again.synced(MIRROR_POD)
        again.message()
        assert (again.held(), delivered(again)) == ({"mirror/main": ("d0",)}, {"mirror": DELIVERY_NRI})


UIDS = [f"p{index}" for index in range(4)]
IDS = [f"d{index}" for index in range(3)]


class Kubelet(RuleBasedStateMachine):
    """A kubelet that gives out, forgets late and is heard late; pods that come and go in the API; restarts of the agent."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror = mirror(devices=len(IDS))
        self.pods: set[str] = set()
        self.gone: set[str] = set()
        self.entries: dict[str, str] = {}
        self.observed: dict[str, str] = {}

    @rule(uid=st.sampled_from(UIDS))
    def comes(self, uid: str) -> None:
        if uid not in self.gone:
            self.pods.add(uid)
            self.mirror.see(pod(uid, gpu=1))

    @rule(uid=st.sampled_from(UIDS), device_id=st.sampled_from(IDS))
    def is_admitted(self, uid: str, device_id: str) -> None:
        """The kubelet forgets finished pods, and allocates a free device."""
        self.entries = {u: d for u, d in self.entries.items() if u not in self.gone}
        if uid in self.pods and uid not in self.entries and device_id not in self.entries.values():
            self.entries[uid] = device_id

    @rule()
    def is_observed(self) -> None:
        self.observed = dict(self.entries)
        self.mirror.message(*(held_by(uid, device_id) for uid, device_id in self.entries.items()))

    @rule(uid=st.sampled_from(UIDS), how=st.sampled_from(["over", "gone"]))
    def ends(self, uid: str, how: str) -> None:
        if uid in self.pods:
            self.pods.discard(uid)
            self.gone.add(uid)
            self.mirror.ends(pod(uid, gpu=1), how)

    @rule()
    def api_lists_again(self) -> None:
        self.mirror.synced(*(pod(uid, gpu=1) for uid in self.pods))

    @rule()
    def agent_restarts(self) -> None:
        self.mirror = Mirror(self.mirror.manager.checkpoint())
        self.is_observed()
        self.api_lists_again()
        plugin(self.mirror, len(IDS))

    @invariant()
    def shows_what_was_observed_of_pods_that_go_on(self) -> None:
        expected = {f"{uid}/main": (device_id,) for uid, device_id in self.observed.items() if uid in self.pods}
        assert self.mirror.held() == expected

    @invariant()
    def numbers_add_up(self) -> None:
        seen = self.mirror.snapshot()
        assert seen.allocated + seen.releasing + seen.available == seen.total == len(IDS)


Kubelet.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestKubelet = Kubelet.TestCase


def test_publishes_are_of_resources_that_changed_alone() -> None:
    found = mirror(ONE)
    plugin(found, 2, NIC)
    assert [each for each in found.message(held_by("one", "d0")) if isinstance(each, Publish)] == [Publish(GPU)]
