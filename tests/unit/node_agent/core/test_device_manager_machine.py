"""Whatever happens, in whatever order: what must hold of the device manager after every single step.

Two managers are told the same and must say the same. A third is made from the checkpoint after each step.
"""

from copy import deepcopy
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nodedevice_agent.core.checkpoint import decode, encode
from nodedevice_agent.core.device_manager import DeviceManager
from nodedevice_agent.core.devices import Device, DeviceList, accept
from nodedevice_agent.core.effects import AskPreferred, CallAllocate, Effect
from nodedevice_agent.core.pods import Container, ContainerKind, Pod
from nodedevice_agent.core.resources import PluginOptions
from nodedevice_agent.core.snapshot import snapshot
from nodedevice_agent.core.status import node_device_status

from tests.unit.node_agent.core import crd_rules

NAMES = ("example.com/gpu", "example.com/nic")
IDS = ("d0", "d1", "d2", "d3")
UIDS = ("pod-a", "pod-b", "pod-c", "pod-d")

DEVICES = st.lists(st.builds(Device, st.sampled_from(IDS), st.sampled_from([True, True, True, False])), max_size=5)
CORDONS = st.sets(st.sampled_from([*IDS[:2], "*"]), max_size=1)
CONTAINERS = st.lists(
    st.builds(
        lambda kind, limits: (kind, {name: count for name, count in limits.items() if count}),
        st.sampled_from(ContainerKind),
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2), max_size=2),
    ),
    min_size=1,
    max_size=3,
)
_ORDER = [ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP]


class ManagerMachine(RuleBasedStateMachine):
    """A node: what plugins are connected, what pods there are, and which calls are still to be answered."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.endpoints: dict[int, str] = {}
        self.last_endpoint = 0
        self.pods: dict[str, Pod] = {}
        self.ended = 0
        self.calls: list[AskPreferred | CallAllocate] = []
        self.intent: dict[str, frozenset[str]] = dict.fromkeys(NAMES, frozenset())

    @initialize(waits_for_runtime=st.booleans(), waits_for_intent=st.booleans())
    def begins(self, **options: bool) -> None:
        self.options = options
        self.manager, self.twin = (DeviceManager(self.now, **options) for _ in range(2))

    def happens(self, event: str, *args: Any) -> None:
        effects: list[Effect] = getattr(self.manager, event)(*args, self.now)
        assert effects == getattr(self.twin, event)(*args, self.now), "equal inputs, unequal effects"
        self.calls += [effect for effect in effects if isinstance(effect, AskPreferred | CallAllocate)]

    # -- plugins ----------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), gives_advice=st.booleans(), devices=st.none() | DEVICES)
    def a_plugin_registers(self, name: str, gives_advice: bool, devices: list[Device] | None) -> None:
        self.last_endpoint += 1
        self.endpoints[self.last_endpoint] = name
        options = PluginOptions(get_preferred_allocation_available=gives_advice)
        self.happens("connected", name, self.last_endpoint, options)
        # the agent looks the intent up when a resource is new, and may be slow about it
        if devices is not None:
            self.happens("listed", name, self.last_endpoint, accept(devices))

    @precondition(lambda self: self.endpoints)
    @rule(data=st.data(), devices=DEVICES)
    def a_plugin_lists(self, data: st.DataObject, devices: list[Device]) -> None:
        endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
        self.happens("listed", self.endpoints[endpoint], endpoint, accept(devices))

    @precondition(lambda self: self.endpoints)
    @rule(data=st.data())
    def a_plugin_goes(self, data: st.DataObject) -> None:
        endpoint = data.draw(st.sampled_from(sorted(self.endpoints)))
        self.happens("disconnected", self.endpoints.pop(endpoint), endpoint)

    @rule(name=st.sampled_from(NAMES), device_ids=CORDONS)
    def an_administrator_cordons(self, name: str, device_ids: set[str]) -> None:
        self.intent[name] = frozenset(device_ids)
        self.happens("cordoned", name, self.intent[name])

    # -- pods -------------------------------------------------------------------------------------------------------

    @rule(uid=st.sampled_from(UIDS), containers=CONTAINERS)
    def a_pod_comes(self, uid: str, containers: list[tuple[ContainerKind, dict[str, int]]]) -> None:
        if uid not in self.pods:
            sorted_by_kind = sorted(containers, key=lambda c: _ORDER.index(c[0]) == 2)
            made = [Container(f"c{index}", kind, limits) for index, (kind, limits) in enumerate(sorted_by_kind)]
            # a uid is never used twice
            self.ended += 1
            self.pods[uid] = Pod(f"{uid}-{self.ended}", "default", uid, tuple(made))
        self.happens("pod_seen", self.pods[uid])

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), how=st.sampled_from(["terminating", "over", "gone"]))
    def a_pod_ends(self, data: st.DataObject, how: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        pod = self.pods[name]
        if how == "terminating":
            self.pods[name] = Pod(pod.uid, pod.namespace, pod.name, pod.containers, is_terminating=True)
            self.happens("pod_seen", self.pods[name])
            return
        del self.pods[name]
        if how == "over":
            self.happens("pod_seen", Pod(pod.uid, pod.namespace, pod.name, pod.containers, is_over=True))
        else:
            self.happens("pod_gone", pod.uid)

    @rule()
    def all_pods_are_listed(self) -> None:
        self.happens("pods_synced", [self.pods[name] for name in sorted(self.pods)])

    @rule()
    def containers_end(self) -> None:
        for uid in sorted(self.manager.book.pod_uids()):
            self.happens("containers_ended", uid)

    # -- answers ----------------------------------------------------------------------------------------------------

    def take_call(self, data: st.DataObject) -> AskPreferred | CallAllocate:
        return self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), advice=st.lists(st.sampled_from([*IDS, "ghost"]), max_size=4))
    def a_plugin_answers(self, data: st.DataObject, advice: list[str]) -> None:
        call = self.take_call(data)
        if isinstance(call, AskPreferred):
            self.happens("preferred", call.ticket, advice)
        else:
            self.happens("allocated", call.ticket, b"answer")

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def a_plugin_fails(self, data: st.DataObject) -> None:
        call = self.take_call(data)
        if isinstance(call, AskPreferred):
            self.happens("preferred", call.ticket, ())
        else:
            self.happens("allocate_failed", call.ticket, "it failed")

    # -- time and restarts ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.5, 5.0, 400.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.happens("tick")
        later = self.manager.next_deadline()
        assert later is None or later > self.now, "a deadline that has passed stays"

    @rule()
    def the_agent_restarts(self) -> None:
        checkpoint = decode(encode(self.manager.checkpoint()))
        self.manager, self.twin = (DeviceManager(self.now, checkpoint, **self.options) for _ in range(2))
        self.endpoints, self.calls = {}, []

    @rule()
    def the_checkpoint_is_lost(self) -> None:
        kept = [deepcopy(allocation) for allocation in self.manager.book]
        self.manager, self.twin = (DeviceManager(self.now, is_recovering=True, **self.options) for _ in range(2))
        self.endpoints, self.calls = {}, []
        unanswered = [type(a)(a.pod_uid, a.container, a.resource_name, a.ids_by_numa, None) for a in kept]
        self.happens("recovered", unanswered)

    # -- what must hold ---------------------------------------------------------------------------------------------

    @invariant()
    def no_device_is_of_two_pods(self) -> None:
        for name, resource in self.manager.resources.items():
            holders: dict[str, str] = {}
            for allocation in self.manager.book.of_resource(name):
                for device_id in allocation.device_ids:
                    assert holders.setdefault(device_id, allocation.pod_uid) == allocation.pod_uid
            assert holders == self.manager.book.holders(name)
            for device_id, uid in resource.reserved.items():
                assert holders.get(device_id, uid) == uid, "reserved by one pod and held by another"

    @invariant()
    def app_containers_of_a_pod_share_nothing(self) -> None:
        kinds = {(p.uid, c.name): c.kind for p in self.pods.values() for c in p.containers}
        kept = [a for a in self.manager.book if kinds.get((a.pod_uid, a.container)) in _ORDER[1:]]
        for index, one in enumerate(kept):
            for other in kept[index + 1 :]:
                if (one.pod_uid, one.resource_name) == (other.pod_uid, other.resource_name):
                    assert not {*one.device_ids} & {*other.device_ids}

    @invariant()
    def every_container_has_what_it_asked_for(self) -> None:
        asked = {
            (p.uid, c.name, name): count
            for p in self.pods.values()
            for c in p.containers
            for name, count in c.limits.items()
        }
        for a in self.manager.book:
            assert len(a.device_ids) == asked.get((a.pod_uid, a.container, a.resource_name), len(a.device_ids))

    @invariant()
    def the_status_is_one_that_the_api_server_takes_and_equal_state_gives_an_equal_one(self) -> None:
        for name in self.manager.resources:
            now = snapshot(self.manager, name)
            resource = self.manager.resources[name]
            ids = {*resource.devices, *self.manager.book.holders(name)}
            assert now.total == len(ids) == len({view.id for view in now.devices})
            first = node_device_status(now, {}, wall_time="2026-01-05T00:00:00Z", version="1", runtime="none")
            assert crd_rules.problems(first) == []
            again = snapshot(self.twin, name)
            second = node_device_status(again, first, wall_time="2026-01-06T00:00:00Z", version="1", runtime="none")
            assert first == second

    @invariant()
    def a_restart_has_the_same_holders(self) -> None:
        before = {(a.pod_uid, a.container, a.resource_name): a.device_ids for a in self.manager.book}
        restarted = DeviceManager(self.now, decode(encode(self.manager.checkpoint())), **self.options)
        assert before == {(a.pod_uid, a.container, a.resource_name): a.device_ids for a in restarted.book}

    @invariant()
    def nobody_waits_who_could_be_served(self) -> None:
        """When every call is answered: what waits lacks devices, a plugin, or time; and nothing is reserved any more."""
        if self.calls:
            return
        for resource in self.manager.resources.values():
            assert resource.reserved == {}, "reserved for nobody"
        for pod in self.pods.values():
            if self.is_over_or_known_to_wait(pod):
                continue
            assert not self.could_be_served(pod), f"{pod} waits, and could be served"

    def is_over_or_known_to_wait(self, pod: Pod) -> bool:
        pausing = any(
            waiting.pod_uid == pod.uid and waiting.retry_at is not None
            for name in self.manager.resources
            for waiting in self.manager.waiting(name)
        )
        # after a restart a pod is not known before it is seen again
        return pod.is_terminating or pausing or self.manager.pod(pod.uid) is None

    def could_be_served(self, pod: Pod) -> bool:
        """Whether there is enough for it, judged generously and then exactly by what a fresh manager would do."""
        lacking = [
            need
            for need in pod.needs()
            if need.resource_name in self.manager.resources
            and self.manager.book.of(pod.uid, need.container, need.resource_name) is None
        ]
        return bool(lacking) and all(self.is_enough(pod, name) for name in {n.resource_name for n in lacking})

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
        return most <= len(resource.free(self.manager.book.holders(name)))


ManagerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestDeviceManager = ManagerMachine.TestCase
