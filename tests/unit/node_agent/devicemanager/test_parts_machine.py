"""Invariants of parts of physical devices after every step of any sequence of events, restarts among them.

The rules for parts are checked by counting what containers hold, and pods that wait by trying every way to serve them.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nodedevice_agent.checkpoint.format import decode, encode
from nodedevice_agent.devicemanager.allocation.assignments import NOT_FITTING, USED
from nodedevice_agent.devicemanager.allocation.topology import Topology, TopologyPolicy, TopologyScope
from nodedevice_agent.devicemanager.effects import AssignedParts, CallAllocate, CallPreferred
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.records.cordons import Cordon
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_api.assigned_parts import encode as encode_assigned
from nodedevice_api.parts import Choice, PartRules, Placement, PodPlacement, parent_and_number

from tests.examples import examples
from tests.unit.node_agent.devicemanager.scenario import GPU, happen, response, status_of, with_edits

# of a container: its kind and number of parts; and those that are assigned to it, by physical device
Limited = Sequence[tuple[ContainerKind, int]]
Parts = dict[str, int]
PARENTS = ("a", "b", "c")
UIDS = ("p", "q", "r", "s")
SIZES = st.tuples(*(st.integers(0, 4) for _ in PARENTS))
RULES = st.builds(PartRules, st.sampled_from(Placement), st.sampled_from(Choice), st.sampled_from(PodPlacement))
KINDS = st.sampled_from([ContainerKind.APP, ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR])
CONTAINERS = st.lists(st.tuples(KINDS, st.integers(1, 4)), min_size=1, max_size=3)
# right and wrong ones, of any containers; some for another pod
ASSIGNMENTS = st.lists(
    st.dictionaries(st.sampled_from([*PARENTS, "x"]), st.integers(1, 4), min_size=1, max_size=2), max_size=3
)
CORDONS = st.sets(st.sampled_from([*PARENTS, "a-0", "b-1", "*"]), max_size=2)
TOPOLOGY = st.builds(
    Topology, st.sampled_from([TopologyPolicy.NONE, *TopologyPolicy]), st.sampled_from(TopologyScope), st.just((0, 1))
)


def parent_of(device_id: str) -> str:
    part = parent_and_number(device_id)
    assert part is not None
    return part[0]


class PartsMachine(RuleBasedStateMachine):
    """A node with one resource of parts, its pods, and the calls in flight."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.endpoint = 0
        self.pods: dict[str, Pod] = {}
        self.made = 0
        # by UID of a pod, those of valid annotations
        self.assigned: dict[str, dict[str, Parts]] = {}

    @initialize(rules=RULES, sizes=SIZES, topology=TOPOLOGY, prefers=st.booleans(), waits_for_runtime=st.booleans())
    def begins(self, rules: PartRules, sizes: Sequence[int], prefers: bool, **options: Any) -> None:
        self.part_rules, self.sizes, self.options, self.broken = rules, sizes, options, frozenset[str]()
        self.plugin_options = PluginOptions(get_preferred_allocation_available=prefers)
        self.a_process_begins()
        self.the_plugin_registers()

    def a_process_begins(self, checkpoint: Checkpoint | None = None) -> None:
        self.manager, self.twin = (DeviceManager(self.now, checkpoint, **self.options) for _ in range(2))
        self.calls: list[CallAllocate | CallPreferred] = []

    def happens(self, event: str, *args: Any) -> None:
        effects = happen(self.manager, event, *args, now=self.now)
        assert effects == happen(self.twin, event, *args, now=self.now), "equal inputs, unequal effects"
        for effect in effects:
            if isinstance(effect, AssignedParts):
                self.is_reported(effect)
            elif isinstance(effect, CallAllocate | CallPreferred):
                self.calls.append(effect)

    def is_reported(self, effect: AssignedParts) -> None:
        pod = self.pods[effect.pod.removeprefix("default/")]
        held = {a.container: Counter(map(parent_of, a.device_ids)) for a in self.manager.book.of_pod(pod.uid)}
        assigned = self.assigned[pod.uid]
        is_as_assigned = all(assigned.get(container) == parts for container, parts in held.items())
        if effect.outcome == USED:
            assert is_as_assigned
        elif effect.outcome == NOT_FITTING:
            assert not is_as_assigned
        else:
            assert "another pod" in effect.problem

    # -- the plugin -----------------------------------------------------------------------------------------------------

    def the_plugin_registers(self) -> None:
        self.endpoint += 1
        self.happens("connected", GPU, self.endpoint, self.plugin_options)
        self.lists(self.sizes, self.broken)

    @rule(sizes=SIZES, broken=st.frozensets(st.sampled_from(["a-0", "a-1", "b-0", "c-2"]), max_size=2))
    def lists(self, sizes: Sequence[int], broken: frozenset[str]) -> None:
        self.sizes, self.broken = sizes, broken
        ids = [f"{parent}-{n}" for parent, size in zip(PARENTS, sizes, strict=True) for n in range(size)]
        devices = (Device(i, i not in broken, (PARENTS.index(i[0]) % 2,), parent=i[0]) for i in ids)
        self.happens("listed", GPU, self.endpoint, accept(devices, part_rules=self.part_rules))

    @rule(ids=CORDONS)
    def an_administrator_cordons(self, ids: Iterable[str]) -> None:
        self.happens("table.cordoned", GPU, "object", dict.fromkeys(ids, Cordon()))

    # -- pods -----------------------------------------------------------------------------------------------------------

    @rule(
        uid=st.sampled_from(UIDS),
        containers=CONTAINERS,
        parents=st.lists(st.sampled_from(PARENTS), min_size=3, max_size=3),
        others=st.none() | ASSIGNMENTS,
        is_copied=st.sampled_from([False, False, True]),
    )
    def a_pod_comes(
        self, uid: str, containers: Limited, parents: Sequence[str], others: list[Parts] | None, is_copied: bool
    ) -> None:
        if uid not in self.pods:
            self.made += 1
            in_order = sorted(containers, key=lambda found: found[0] is ContainerKind.APP)
            made = [Container(f"c{index}", kind, {GPU: count}) for index, (kind, count) in enumerate(in_order)]
            pod_uid = f"{uid}-{self.made}"
            near = [{parent: c.limits[GPU]} for parent, c in zip(parents, made, strict=False)]
            of_container = {f"c{index}": parts for index, parts in enumerate(near if others is None else others)}
            text = encode_assigned("another" if is_copied else pod_uid, {GPU: of_container}) if of_container else ""
            self.assigned[pod_uid] = {} if is_copied else of_container
            self.pods[uid] = Pod(pod_uid, "default", uid, tuple(made), assigned_parts=text)
            if others is None and not is_copied and self.meets(made, parents):
                self.happens("pod_events.seen", self.pods[uid])
                self.gets_what_is_assigned(pod_uid)
                return
        self.happens("pod_events.seen", self.pods[uid])

    def meets(self, containers: Sequence[Container], parents: Sequence[str]) -> bool:
        """Whether each container can have all its parts of the one device that is assigned, whoever else waits."""
        resource = self.manager.resources[GPU]
        free, spare = Counter(map(parent_of, availability.free(resource))), Counter[str]()
        for container, parent in zip(containers, parents, strict=False):
            count = container.limits[GPU]
            reused = min(count, spare[parent])
            free[parent] -= count - reused
            spare[parent] += count - reused if container.kind is ContainerKind.INIT else -reused
        is_plain = self.part_rules.placement is Placement.SAME_PARENT and not self.options["topology"].is_aligning
        return is_plain and resource.is_ready and min(free.values(), default=0) >= 0

    def gets_what_is_assigned(self, pod_uid: str) -> None:
        """The first call for it, if nothing holds it back, is for parts of the assigned device."""
        for call in self.calls:
            if isinstance(call, CallAllocate) and call.pod_uid == pod_uid:
                assert Counter(map(parent_of, call.device_ids)) == self.assigned[pod_uid][call.container]

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        pod = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        self.happens("pod_events.gone", pod.uid)
        self.happens("releasing.containers_ended", pod.uid)

    # -- answers ----------------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), fails=st.sampled_from([False, False, True]))
    def a_plugin_answers(self, data: st.DataObject, fails: bool) -> None:
        self.answer(data.draw(st.integers(0, len(self.calls) - 1)), fails=fails)

    @rule()
    def everything_is_answered(self) -> None:
        while self.calls:
            self.answer()

    def answer(self, index: int = 0, *, fails: bool = False) -> None:
        call = self.calls.pop(index)
        if isinstance(call, CallPreferred):
            assert self.part_rules.placement is Placement.ANY
            self.happens("preferred", call.ticket, call.available[::-1][: call.size])
        elif fails:
            self.happens("allocate_failed", call.ticket, "it failed")
        else:
            self.happens("allocated", call.ticket, response(b"answer"))

    @rule(seconds=st.sampled_from([1.0, 100.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.happens("tick")

    # -- restarts ---------------------------------------------------------------------------------------------------------

    @rule(lists_first=st.booleans())
    def the_agent_restarts(self, lists_first: bool) -> None:
        held = {a.key: a.device_ids for a in self.manager.book}
        self.a_process_begins(with_edits(decode(encode(self.manager.checkpoint()))))
        assert {a.key: a.device_ids for a in self.manager.book} == held
        if lists_first:
            self.the_plugin_registers()
        self.happens("pod_events.synced", [self.pods[name] for name in sorted(self.pods)])
        if not lists_first:
            self.the_plugin_registers()

    # -- invariants -------------------------------------------------------------------------------------------------------

    @invariant()
    def no_part_belongs_to_two_pods_or_to_two_containers_that_stay(self) -> None:
        kinds = {(p.uid, c.name): c.kind for p in self.pods.values() for c in p.containers}
        holders: dict[str, str] = {}
        stay: Counter[str] = Counter()
        for a in self.manager.book:
            for device_id in a.device_ids:
                assert holders.setdefault(device_id, a.pod_uid) == a.pod_uid
            if kinds.get((a.pod_uid, a.container)) in (ContainerKind.APP, ContainerKind.SIDECAR):
                stay.update(a.device_ids)
        assert holders == self.manager.resources[GPU].use.holders
        assert max(stay.values(), default=0) <= 1

    @invariant()
    def a_container_has_what_it_requested_within_the_rules(self) -> None:
        requested = {(p.uid, c.name): c.limits[GPU] for p in self.pods.values() for c in p.containers}
        for a in self.manager.book:
            count = len(a.device_ids)
            assert count == requested.get((a.pod_uid, a.container), count)
            parents = {parent_of(i) for i in a.device_ids}
            if self.part_rules.placement is Placement.SAME_PARENT:
                assert len(parents) == 1, f"{a} is of several devices"
            elif self.part_rules.placement is Placement.DISTINCT_PARENTS:
                assert len(parents) == count, f"{a} is of one device twice"

    @invariant()
    def the_parts_of_each_device_add_up(self) -> None:
        now, resource = snapshot(self.manager, GPU), self.manager.resources[GPU]
        if not resource.is_live:
            return
        held = Counter(map(parent_of, resource.use.holders))
        free = Counter(
            parent_of(i)
            for i in resource.devices
            if i not in resource.use.holders and availability.is_usable(resource, i)
        )
        shown = {device.id: device.parts for device in now.devices if device.parts is not None}
        assert {p: parts.allocated for p, parts in shown.items() if parts.allocated} == dict(held)
        assert {p: parts.available for p, parts in shown.items() if parts.available} == dict(free)
        assert sum(parts.total for parts in shown.values()) == now.total
        assert sum(parts.available for parts in shown.values()) == now.available
        assert now.cordoned == sum(map(resource.use.is_cordoned, {*resource.devices, *resource.use.holders}))
        assert now.available + now.allocated + now.releasing <= now.total

    @invariant()
    def an_equal_state_gives_an_equal_status(self) -> None:
        first, second = (status_of(snapshot(m, GPU), {}, "2026-01-05T00:00:00Z") for m in (self.manager, self.twin))
        assert first == second

    @invariant()
    def reservations_belong_to_pods_in_progress(self) -> None:
        assert set(self.manager.resources[GPU].use.reserved.values()) <= set(self.manager.allocator.in_progress)

    @invariant()
    def no_pod_that_could_be_served_waits(self) -> None:
        in_backoff = {w.pod_uid for w in self.manager.pending(GPU) if w.retry_at is not None}
        for pod in self.pods.values():
            is_idle = pod.uid not in self.manager.allocator.in_progress and not self.manager.book.of_pod(pod.uid)
            is_known = self.manager.pod(pod.uid) is not None and pod.uid not in in_backoff
            if is_idle and is_known and self.is_checked(pod):
                assert not self.could_be_served(pod), f"{pod} waits: {self.manager.pending(GPU)}"

    def is_checked(self, pod: Pod) -> bool:
        """For alignment, and for distinct devices that are reused, there is no such guarantee."""
        topology = self.options["topology"]
        has_init = any(c.kind is ContainerKind.INIT for c in pod.containers)
        return not topology.is_aligning and not (has_init and self.part_rules.placement is not Placement.SAME_PARENT)

    def could_be_served(self, pod: Pod) -> bool:
        resource = self.manager.resources[GPU]
        free = Counter(map(parent_of, availability.free(resource)))
        return resource.is_ready and self.fits(list(pod.containers), free, Counter())

    def fits(self, containers: list[Container], free: Counter[str], reusable: Counter[str]) -> bool:
        """Whether any choice of physical devices serves all of these containers."""
        if not containers:
            return True
        first, *others = containers
        count = first.limits[GPU]
        if self.part_rules.placement is Placement.ANY:
            return sum(c.limits[GPU] for c in containers) <= free.total()
        ways: Iterable[tuple[tuple[str, ...], int]] = (
            [((parent,), count) for parent in PARENTS]
            if self.part_rules.placement is Placement.SAME_PARENT
            else [(parents, 1) for parents in combinations(PARENTS, count)]
        )
        for parents, each in ways:
            left, spare = Counter(free), Counter(reusable)
            for parent in parents:
                reused = min(each, spare[parent])
                left[parent] -= each - reused
                spare[parent] += each - reused if first.kind is ContainerKind.INIT else -reused
            if min(left.values(), default=0) >= 0 and self.fits(others, left, spare):
                return True
        return False


PartsMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestParts = PartsMachine.TestCase
