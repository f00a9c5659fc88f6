"""Invariants of the device manager after every step of any sequence of events.

Two managers get the same events and must return the same effects. A third is made from the checkpoint after each step.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.releasing import RELEASING_SETTLE_SECONDS
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import Snapshot, is_settling, snapshot

from tests.examples import examples
from tests.unit.node_agent.devicemanager.scenario import happen, response, status_of, with_edits
from tests.unit.node_agent.kube import crd_rules

NAMES = ("example.com/gpu", "example.com/nic")
# few, so that pods contend
IDS = ("d0", "d1")
UIDS = ("pod-a", "pod-b", "pod-c", "pod-d")

Call = CallPreferred | CallAllocate | CallPreStart
Limited = tuple[ContainerKind, dict[str, int]]

ALL = [Device(device_id) for device_id in IDS]
# often all of them, because most interesting states need devices to allocate
DEVICES = st.just(ALL) | st.lists(
    st.builds(Device, st.sampled_from(IDS), st.sampled_from([True, True, True, False])), max_size=5
)
CORDONS = st.sets(st.sampled_from([*IDS[:2], "*"]), max_size=1)
OPTIONS = st.builds(
    PluginOptions,
    pre_start_required=st.booleans(),
    get_preferred_allocation_available=st.booleans(),
    scope=st.sampled_from(["", "built-in of this agent"]),
)
LIMITS = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([1, 1, 2]), min_size=1, max_size=2)
CONTAINERS = st.tuples(st.tuples(st.just(ContainerKind.APP), st.just({NAMES[0]: 1}))) | st.lists(
    st.tuples(st.sampled_from(ContainerKind), LIMITS), min_size=1, max_size=3
)
# mostly many, so that common states are frequent and rare ones occur
PLUGINS_BACK = st.sampled_from([2, 2, 2, 1, 0])
_STAYS = (ContainerKind.SIDECAR, ContainerKind.APP)


class ManagerMachine(RuleBasedStateMachine):
    """A node: its connected plugins, its pods, and the calls in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.endpoints: dict[int, str] = {}
        self.last_endpoint = 0
        self.pods: dict[str, Pod] = {}
        self.ended = 0
        self.calls: list[Call] = []
        self.cordons: dict[str, frozenset[str]] = dict.fromkeys(NAMES, frozenset())
        # the status published last, by resource; None from a restart until the pods are synced, when everything is published
        self.published: dict[str, dict[str, Any]] | None = {}

    @initialize(waits_for_runtime=st.booleans(), waits_for_cordons=st.booleans(), plugins=PLUGINS_BACK)
    def begins(self, plugins: int, **options: Any) -> None:
        self.options = options
        self.a_process_begins()
        self.plugins_register(plugins)

    def a_process_begins(self, checkpoint: Checkpoint | None = None, **more: Any) -> None:
        self.manager, self.twin = (DeviceManager(self.now, checkpoint, **self.options, **more) for _ in range(2))
        self.endpoints, self.calls = {}, []

    def plugins_register(self, count: int) -> None:
        for name in NAMES[:count]:
            self.a_plugin_registers(name, PluginOptions(pre_start_required=name == NAMES[0]), ALL, True)

    def happens(self, event: str, *args: Any) -> None:
        before = {allocation.key for allocation in self.manager.book}
        effects = happen(self.manager, event, *args, now=self.now)
        if event in ("allocated", "preferred"):
            self.only_usable_devices_are_allocated(before)
        assert effects == happen(self.twin, event, *args, now=self.now), "equal inputs, unequal effects"
        if event == "pod_events.synced":
            self.published = {}
            effects = [*effects, *map(Publish, self.manager.resources)]
        self.carry_out(effects)
        if event in ("pod_events.seen", "pod_events.gone", "pod_events.synced") and self.manager.book.releasing:
            # a release is published a moment later
            self.the_next_tick_is_at_the_earliest_time_of_all()
            self.now += RELEASING_SETTLE_SECONDS
            self.happens("tick")

    def carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Call):
                self.calls.append(effect)
            elif isinstance(effect, Publish) and self.published is not None:
                self.published[effect.resource_name] = self.status(effect.resource_name)

    def seen(self, name: str) -> Snapshot:
        return snapshot(self.manager, name)

    def status(self, name: str) -> dict[str, Any]:
        return status_of(self.seen(name), {}, "2026-01-05T00:00:00Z")

    def only_usable_devices_are_allocated(self, before: set[tuple[str, str, str]]) -> None:
        for allocation in self.manager.book:
            if allocation.key not in before:
                resource = self.manager.resources[allocation.resource_name]
                is_usable = [availability.is_usable(resource, i) for i in allocation.device_ids]
                assert all(is_usable), f"{allocation} cannot be used"

    # -- plugins ----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), options=OPTIONS, devices=st.none() | DEVICES, cordons=st.booleans())
    def a_plugin_registers(
        self, name: str, options: PluginOptions, devices: list[Device] | None, cordons: bool
    ) -> None:
        self.last_endpoint += 1
        self.endpoints[self.last_endpoint] = name
        self.happens("connected", name, self.last_endpoint, options)
        if devices is not None:
            self.happens("listed", name, self.last_endpoint, accept(devices))
        if cordons:
            self.cordon(name, self.cordons[name])

    @precondition(lambda self: self.endpoints)
    @rule(data=st.data(), devices=DEVICES)
    def a_plugin_lists(self, data: st.DataObject, devices: list[Device]) -> None:
        endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
        self.happens("listed", self.endpoints[endpoint], endpoint, accept(devices))

    @rule(names=st.sets(st.sampled_from(NAMES)), returning=st.sets(st.sampled_from(NAMES)))
    def the_configuration_changes(self, names: set[str], returning: set[str]) -> None:
        """returning: those that get another plugin, which is configured."""

        def is_configured(name: str, scope: str) -> bool:
            return name in names

        for manager in (self.manager, self.twin):
            manager.table.ranked({}, returning & names, self.now)
            manager.table.configured(is_configured, self.now, sorted(returning & names))
        effects = self.manager.settle(self.now)
        assert effects == self.twin.settle(self.now)
        self.carry_out(effects)

    @rule(name=st.sampled_from(NAMES))
    def an_object_is_deleted(self, name: str) -> None:
        self.manager.forget(name)
        self.twin.forget(name)
        if name not in self.manager.resources and self.published is not None:
            self.published.pop(name, None)

    @rule(name=st.sampled_from(NAMES), device_ids=CORDONS)
    def an_administrator_cordons(self, name: str, device_ids: set[str]) -> None:
        self.cordons[name] = frozenset(device_ids)
        self.cordon(name, self.cordons[name])

    def cordon(self, name: str, device_ids: Iterable[str]) -> None:
        self.happens("table.cordoned", name, "object", dict.fromkeys(device_ids, Cordon()))

    # -- pods -------------------------------------------------------------------------------------------------------

    @rule(uid=st.sampled_from(UIDS), containers=CONTAINERS)
    def a_pod_comes(self, uid: str, containers: Sequence[Limited]) -> None:
        if uid not in self.pods:
            in_order = sorted(containers, key=lambda found: found[0] is ContainerKind.APP)
            made = [Container(f"c{index}", kind, limits) for index, (kind, limits) in enumerate(in_order)]
            # a uid is never used twice
            self.ended += 1
            self.pods[uid] = Pod(f"{uid}-{self.ended}", "default", uid, tuple(made))
        self.happens("pod_events.seen", self.pods[uid])

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), how=st.sampled_from(["terminating", "over", "gone"]))
    def a_pod_ends(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        if how == "terminating":
            self.pods[name] = replace(self.pods[name], is_terminating=True)
            self.happens("pod_events.seen", self.pods[name])
        else:
            self.ends_in_the_api(name, how)

    def ends_in_the_api(self, name: str, how: str) -> None:
        pod = self.pods.pop(name)
        if how == "over":
            self.happens("pod_events.seen", replace(pod, has_ended=True, is_terminating=False))
        else:
            self.happens("pod_events.gone", pod.uid)

    @rule()
    def all_pods_are_listed(self) -> None:
        self.happens("pod_events.synced", [self.pods[name] for name in sorted(self.pods)])

    @rule()
    def containers_end(self) -> None:
        for uid in sorted(self.manager.book.by_pod):
            self.happens("releasing.containers_ended", uid)

    # -- answers ----------------------------------------------------------------------------------------------------

    @rule(new=st.lists(st.tuples(st.sampled_from(UIDS), CONTAINERS), min_size=2, max_size=4))
    def pods_come_together(self, new: list[tuple[str, Sequence[Limited]]]) -> None:
        for uid, containers in new:
            self.a_pod_comes(uid, containers)

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), preferred=st.lists(st.sampled_from([*IDS, "ghost"]), max_size=4), fails=st.booleans())
    def a_plugin_answers(self, data: st.DataObject, preferred: list[str], fails: bool) -> None:
        self.answer(self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1))), preferred, fails=fails)

    def answer(self, call: Call, preferred: Sequence[str] = (), *, fails: bool = False) -> None:
        match call, fails:
            case CallPreferred(), _:
                self.happens("preferred", call.ticket, () if fails else preferred)
            case CallAllocate(), False:
                self.happens("allocated", call.ticket, response(b"answer"))
            case CallPreStart(), False:
                self.happens("pre_started", call.ticket)
            case _:
                event = "allocate_failed" if isinstance(call, CallAllocate) else "pre_start_failed"
                self.happens(event, call.ticket, "it failed")

    @rule()
    def everything_is_answered(self) -> None:
        while self.calls:
            self.answer(self.calls.pop(0))

    # -- time and restarts ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 5.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.happens("tick")
        later = self.manager.next_deadline()
        assert later is None or later > self.now, "a deadline that has passed stays"

    @rule(data=st.data(), what=st.sampled_from(["a plugin goes", "restart", "restart", "lost checkpoint"]))
    def something_breaks(self, data: st.DataObject, what: str) -> None:
        if what == "a plugin goes":
            if self.endpoints:
                endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
                self.happens("table.disconnected", self.endpoints.pop(endpoint), endpoint)
            return
        plugins = data.draw(PLUGINS_BACK)
        if what == "restart":
            self.the_agent_restarts(plugins)
        else:
            self.the_checkpoint_is_lost(plugins, data.draw(st.booleans()))
        if data.draw(st.booleans()):
            self.all_pods_are_listed()

    def the_agent_restarts(self, plugins: int) -> None:
        self.published = None
        self.a_process_begins(with_edits(decode(encode(self.manager.checkpoint()))))
        self.plugins_register(plugins)

    def the_checkpoint_is_lost(self, plugins: int, comes_first: bool) -> None:
        self.published = None
        unanswered = [replace(allocation, response=None, edits=None) for allocation in self.manager.book]
        self.a_process_begins(is_recovering=True)
        if comes_first:
            self.plugins_register(plugins)
        self.happens("recovered", Checkpoint(tuple(unanswered)))
        if not comes_first:
            self.plugins_register(plugins)

    # -- invariants ------------------------------------------------------------------------------------------------

    @invariant()
    def no_device_belongs_to_two_pods(self) -> None:
        for name, resource in self.manager.resources.items():
            holders: dict[str, str] = {}
            for allocation in self.manager.book.of_resource(name):
                for device_id in allocation.device_ids:
                    assert holders.setdefault(device_id, allocation.pod_uid) == allocation.pod_uid
            assert holders == resource.use.holders
            for device_id, uid in resource.use.reserved.items():
                assert holders.get(device_id, uid) == uid, "reserved by one pod and held by another"

    @invariant()
    def the_next_tick_is_at_the_earliest_time_of_all(self) -> None:
        manager, presences = self.manager, [resource.presence for resource in self.manager.resources.values()]
        times = [at for presence in presences for at in (presence.grace_ends_at, presence.settle_until)]
        times += [resource.flap_damping.next_deadline() for resource in manager.resources.values()]
        times += [*manager.releasing._publish_at.values(), manager.table.preference._deadline]
        for calls in (manager.allocator.pending, manager._reallocations.failures, manager.pre_starts.failures):
            times += [pending.retry_at for pending in calls.values()]
        assert not manager.allocator._postponed, "few pods are never postponed, so their turns need no time"
        assert manager.next_deadline() == min((at for at in times if at is not None), default=None)

    @invariant()
    def app_containers_of_a_pod_share_nothing(self) -> None:
        kinds = {(p.uid, c.name): c.kind for p in self.pods.values() for c in p.containers}
        stay = [a for a in self.manager.book if kinds.get((a.pod_uid, a.container)) in _STAYS]
        uses = Counter((a.pod_uid, a.resource_name, device_id) for a in stay for device_id in a.device_ids)
        assert max(uses.values(), default=0) <= 1

    @invariant()
    def every_container_has_the_requested_number(self) -> None:
        requests = {
            (p.uid, n.container, n.resource_name): n.count for p in self.pods.values() for n in p.device_requests
        }
        for a in self.manager.book:
            assert len(a.device_ids) == requests.get(a.key, len(a.device_ids))

    @invariant()
    def the_status_is_valid_and_equal_state_gives_an_equal_one(self) -> None:
        for name, resource in self.manager.resources.items():
            now = snapshot(self.manager, name)
            ids = {*resource.devices, *resource.use.holders}
            assert now.total == len(ids)
            kept = {*resource.use.holders, *resource.use.cordoned_ids}
            assert [view.id for view in now.devices] == sorted(ids if resource.is_live else ids & kept)
            first = status_of(now, {}, "2026-01-05T00:00:00Z")
            assert crd_rules.problems(first) == []
            assert status_of(snapshot(self.twin, name), first, "2026-01-06T00:00:00Z") == first

    @invariant()
    def the_published_status_is_current(self) -> None:
        for name in self.manager.resources:
            if self.published is not None and not is_settling(self.manager, name):
                assert self.published.get(name) == self.status(name), f"{name} differs from the published one"

    @invariant()
    def what_is_not_configured_has_no_free_device_and_no_deadline(self) -> None:
        for resource in self.manager.resources.values():
            if resource.presence.is_not_configured:
                assert (resource.presence.state, resource.presence.grace_ends_at) == (EndpointState.GONE, None)
                assert availability.free(resource) == ()

    @invariant()
    def a_restart_has_the_same_allocations(self) -> None:
        restarted = DeviceManager(self.now, decode(encode(self.manager.checkpoint())), **self.options)
        assert {a.key: a.device_ids for a in self.manager.book} == {a.key: a.device_ids for a in restarted.book}

    @invariant()
    def reservations_belong_to_pods_in_progress(self) -> None:
        for resource in self.manager.resources.values():
            assert set(resource.use.reserved.values()) <= set(self.manager.allocator.in_progress)

    @invariant()
    def no_pod_that_could_be_served_is_pending(self) -> None:
        """No retry is lost: a pod without a call in flight lacks devices or a plugin, or is in a backoff."""
        for pod in self.pods.values():
            # after a restart a pod is not known before it is seen again
            is_known = self.manager.pod(pod.uid) is not None
            is_in_progress = pod.uid in self.manager.allocator.in_progress
            if is_known and not is_in_progress and not pod.is_terminating and not self.is_in_backoff(pod):
                assert not self.could_be_served(pod), f"{pod} is pending, but could be served"

    def is_in_backoff(self, pod: Pod) -> bool:
        pending = [found for name in self.manager.resources for found in self.manager.pending(name)]
        return any(found.pod_uid == pod.uid and found.retry_at is not None for found in pending)

    def could_be_served(self, pod: Pod) -> bool:
        """Whether enough devices are free of every known resource that the pod still lacks."""
        book, requests = self.manager.book, pod.device_requests
        lacking = {n.resource_name for n in requests if book.of(pod.uid, n.container, n.resource_name) is None}
        lacking &= self.manager.resources.keys()
        return bool(lacking) and all(self.is_enough(pod, name) for name in lacking)

    def is_enough(self, pod: Pod, name: str) -> bool:
        resource = self.manager.resources[name]
        if not resource.is_ready:
            return False
        spare, most = 0, 0
        for container in pod.containers:
            count = container.limits.get(name, 0)
            fresh = max(0, count - spare)
            most += fresh
            spare += fresh if container.kind is ContainerKind.INIT else -min(spare, count)
        return most <= len(availability.free(resource))


ManagerMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
TestDeviceManager = pytest.mark.kubelet("behaviour 47", "weak spot 1", "weak spot 22")(ManagerMachine.TestCase)
