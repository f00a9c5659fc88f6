"""The fleet in a model of all that surrounds it: an API server, agents, one scheduler, and extenders that come and go.

Agents see pods late, publish late and release late; each status is one moment of the agent. The extender sees pods and statuses
each in their order, out of step with each other. What it promised has to be free when the agent comes to it, unless a GPU broke.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from nodedevice_kube.planner import Misfit, Planner, obeys
from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.pod_requests import container_percent, planned, taken
from nodedevice_operator.extender.promises import GONE_SECONDS
from nodedevice_operator.objects.bound_pod import BoundPod, PodNeeds
from nodedevice_operator.objects.node_parts import NodeParts, PodHolding

from tests.examples import examples
from tests.fakes.steps import finished
from tests.unit.operator.extender import fleets
from tests.unit.operator.extender.fleets import MEM, SAME

UNITS = 8
GPUS = ("g0", "g1")
NODES = ("a", "b")


NEEDS = st.builds(
    lambda counts, inits, percent: fleets.needs(*counts, inits=min(inits, len(counts) - 1), sm_percent=percent),
    st.lists(st.integers(1, UNITS // 2), min_size=1, max_size=2),
    st.integers(0, 1),
    st.sampled_from([None, None, 10, 40, 70]),
)
OUTCOMES = st.sampled_from(["done", "done", "done", "refused", "unknown"])
# of what would otherwise excuse each agent most of the time
SELDOM = st.sampled_from([False] * 9 + [True])


@dataclass
class Agent:
    """What one agent does. events: pods that it has not seen yet. late: pods that did not get what they were promised.

    is_excused: a GPU has broken, or another scheduler's pod has come, and the extender did not know of it in time.
    """

    name: str
    sm_percent: int | None = None
    events: deque[tuple[str, BoundPod]] = field(default_factory=deque)
    held: dict[str, dict[str, int]] = field(default_factory=dict)
    # by pod: parent and parts of each container, and the percent of its multiprocessors
    chosen: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    releasing: set[str] = field(default_factory=set)
    waiting: dict[str, BoundPod] = field(default_factory=dict)
    broken: set[str] = field(default_factory=set)
    is_excused: bool = False
    late: list[str] = field(default_factory=list)

    def free(self) -> dict[str, int]:
        found = dict.fromkeys(GPUS, UNITS)
        for parts in self.held.values():
            for parent, count in parts.items():
                found[parent] -= count
        assert min(found.values()) >= 0, "a unit has two pods"
        return {parent: 0 if parent in self.broken else count for parent, count in found.items()}

    def percent_left(self) -> dict[str, int] | None:
        """As the device plugin counts: every container of other pods, those of ended ones too."""
        found = dict.fromkeys(GPUS, 100)
        for chosen in self.chosen.values():
            for parent, _, percent in chosen:
                found[parent] -= percent
        return None if self.sm_percent is None else found

    def step(self) -> None:
        """See the next change of a pod."""
        kind, pod = self.events.popleft()
        if kind == "bound":
            self._allocate(pod)
            if pod.uid not in self.held:
                self.waiting[pod.uid] = pod
                if not self.is_excused:
                    self.late.append(pod.uid)
        elif pod.uid in self.held:
            self.releasing.add(pod.uid)
        else:
            self.waiting.pop(pod.uid, None)

    def release(self) -> None:
        """The containers of one pod have ended; those that wait are tried again."""
        uid = min(self.releasing)
        self.releasing.discard(uid)
        del self.held[uid], self.chosen[uid]
        for pod in list(self.waiting.values()):
            self._allocate(pod)
            if pod.uid in self.held:
                del self.waiting[pod.uid]

    def _allocate(self, pod: BoundPod) -> None:
        containers = pod.needs.containers(MEM)
        assigned = pod.assigned.get(MEM)
        needs = planned(containers, SAME, pod.needs.sm_percent, self.sm_percent)
        planner = Planner(SAME, self.free(), percent_left=self.percent_left())
        if assigned is not None and planner.can_take(needs, [dict(assigned[each.container]) for each in containers]):
            self._take(pod, assigned)
            return
        if assigned is not None and not self.is_excused:
            self.late.append(pod.uid)
        found = planner.plan(needs)
        if not isinstance(found, Misfit):
            self._take(pod, {each.container: parts for each, parts in zip(containers, found, strict=True)})

    def _take(self, pod: BoundPod, parts: Mapping[str, Mapping[str, int]]) -> None:
        containers = pod.needs.containers(MEM)
        self.held[pod.uid] = taken(containers, parts)
        self.chosen[pod.uid] = [
            (parent, count, container_percent(count, pod.needs.sm_percent, self.sm_percent or 0))
            for each in containers
            for parent, count in parts[each.container].items()
        ]

    def status(self) -> NodeParts:
        holders = {
            uid: tuple(PodHolding(GPUS.index(p), count, self._shared(uid, p)) for p, count in parts.items())
            for uid, parts in self.held.items()
        }
        free = self.free().values()
        return fleets.node(self.name, *free, healthy=UNITS, holders=holders, sm_percent=self.sm_percent)

    def _shared(self, uid: str, parent: str) -> tuple[int, ...]:
        return tuple(count for one, count, _ in self.chosen[uid] if one == parent)


class FleetMoves(RuleBasedStateMachine):
    """pods: pending ones. bound: those of the API with a node. sent: binds of which the extender does not know the outcome."""

    # percent of a GPU's multiprocessors for each part; None: they are not limited
    sm_percent: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.made = 0
        self.pending: dict[str, PodNeeds] = {}
        self.bound: dict[str, BoundPod] = {}
        self.sent: dict[str, BoundPod] = {}
        self.filtered: dict[str, str] = {}
        self.agents = {name: Agent(name, self.sm_percent) for name in NODES}
        self.published = {name: agent.status() for name, agent in self.agents.items()}
        self.pod_events: deque[tuple[str, BoundPod]] = deque()
        self.statuses: deque[NodeParts] = deque()
        self.fleet = Fleet()
        self._fill()

    def _fill(self) -> None:
        for pod in self.bound.values():
            self.fleet.pod_changed(pod, self.now)
        for record in self.published.values():
            self.fleet.node_changed(record, self.now)

    # -- pods -----------------------------------------------------------------------------------------------------------

    @rule(needs=NEEDS)
    def create(self, needs: PodNeeds) -> None:
        self._create(needs)

    def _create(self, needs: PodNeeds) -> str:
        self.made += 1
        uid = f"p{self.made:03}"
        self.pending[uid] = needs
        return uid

    @rule(needs=NEEDS, data=st.data(), outcome=OUTCOMES)
    def create_and_bind(self, needs: PodNeeds, data: Any, outcome: str) -> None:
        """As fast as it goes."""
        uid = self._create(needs)
        self._filter(uid, data)
        if uid in self.filtered:
            self._bind_filtered(uid, outcome)

    @precondition(lambda self: self.pending.keys() - self.sent.keys())
    @rule(data=st.data())
    def filter(self, data: Any) -> None:
        """The scheduler looks for a node, and takes the best, or the one that other scores make it take."""
        self._filter(data.draw(st.sampled_from(sorted(self.pending.keys() - self.sent.keys()))), data)

    def _filter(self, uid: str, data: Any) -> None:
        found = finished(self.fleet.filter(uid, self.pending[uid], NODES, self.now))
        assert not found.unresolvable
        assert set(found.fitting) | found.failed.keys() == set(NODES)
        self.filtered.pop(uid, None)
        if data.draw(st.booleans()):
            # the pod has no preference: one node is named, and its parts are held
            best = finished(self.fleet.filter(uid, self.pending[uid], NODES, self.now, names_best=True)).fitting
            assert len(best) == min(len(found.fitting), 1)
            assert set(best) <= set(found.fitting)
            found.fitting = best
        if len(found.fitting) > 1:
            scores = finished(self.fleet.score(uid, self.pending[uid], found.fitting, "binpack", self.now))
            assert [score for _, score in scores].count(10) == 1
        if found.fitting:
            self.filtered[uid] = data.draw(st.sampled_from(found.fitting))

    @precondition(lambda self: self.filtered)
    @rule(data=st.data(), outcome=OUTCOMES)
    def bind(self, data: Any, outcome: str) -> None:
        self._bind_filtered(data.draw(st.sampled_from(sorted(self.filtered))), outcome)

    def _bind_filtered(self, uid: str, outcome: str) -> None:
        node = self.filtered.pop(uid)
        if uid not in self.pending or uid in self.sent:
            return
        needs = self.pending[uid]
        assigned = self.fleet.assign(uid, needs, node, self.now)
        if isinstance(assigned, NotFitting):
            assert assigned.reason
            return
        assert all(obeys(SAME, each, assigned[MEM][each.container]) for each in needs.containers(MEM))
        self.fleet.promise(uid, needs, node, assigned, self.now)
        assert self.fleet.assign(uid, needs, node, self.now) == assigned
        pod = fleets.pod(uid, needs, node, assigned)
        if outcome == "done":
            self._bind(pod)
            self.fleet.confirm(uid)
        elif outcome == "refused":
            self.fleet.withdraw(uid)
        else:
            self.sent[uid] = pod

    @precondition(lambda self: self.sent)
    @rule(is_done=st.booleans(), is_deleted=st.booleans())
    def settle(self, is_done: bool, is_deleted: bool = False) -> None:
        """A request arrives at last, or never does. The extender reads the pod, which may be gone before a watch shows it."""
        uid, pod = min(self.sent.items())
        found = finished(self.fleet.filter(uid, pod.needs, NODES, self.now))
        assert found.fitting == [pod.node]
        del self.sent[uid]
        if is_done and uid in self.pending:
            self._bind(pod)
        elif not is_deleted:
            self.fleet.withdraw(uid)
        if is_deleted:
            self.pending.pop(uid, None)
            if uid in self.bound:
                self._delete(uid)
            self.fleet.pod_gone(uid, self.now)

    @precondition(lambda self: self.bound and not self.sent)
    @rule(data=st.data(), counts=st.integers(1, UNITS), happens=SELDOM)
    def stranger(self, data: Any, counts: int, *, happens: bool) -> None:
        """Another scheduler binds a pod: its node chooses, and may be short of parts from then on."""
        if not happens:
            return
        self.made += 1
        node = data.draw(st.sampled_from(NODES))
        pod = fleets.pod(f"s{self.made:03}", fleets.needs(counts), node)
        self.agents[node].is_excused = True
        self.pending[pod.uid] = pod.needs
        self._bind(pod)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        self._delete(data.draw(st.sampled_from(sorted(self.bound))))

    @precondition(lambda self: self.pending.keys() - self.sent.keys())
    @rule(data=st.data())
    def delete_pending(self, data: Any) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pending.keys() - self.sent.keys())))
        del self.pending[uid]

    def _bind(self, pod: BoundPod) -> None:
        del self.pending[pod.uid]
        self.bound[pod.uid] = pod
        self.pod_events.append(("bound", pod))
        self.agents[pod.node].events.append(("bound", pod))

    def _delete(self, uid: str) -> None:
        pod = self.bound.pop(uid)
        self.pod_events.append(("gone", pod))
        self.agents[pod.node].events.append(("gone", pod))

    # -- agents ---------------------------------------------------------------------------------------------------------

    @rule(node=st.sampled_from(NODES), count=st.integers(1, 4))
    def agent_sees_pods(self, node: str, count: int) -> None:
        for _ in range(min(count, len(self.agents[node].events))):
            self.agents[node].step()

    @rule(node=st.sampled_from(NODES))
    def agent_releases(self, node: str) -> None:
        if self.agents[node].releasing:
            self.agents[node].release()

    @rule(node=st.sampled_from(NODES))
    def agent_publishes(self, node: str) -> None:
        self.published[node] = self.agents[node].status()
        self.statuses.append(self.published[node])

    @rule(node=st.sampled_from(NODES), parent=st.sampled_from(GPUS), happens=SELDOM)
    def gpu_breaks(self, node: str, parent: str, *, happens: bool) -> None:
        if happens:
            self.agents[node].broken.add(parent)
            self.agents[node].is_excused = True

    # -- the extender ---------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 4))
    def pods_arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.pod_events))):
            kind, pod = self.pod_events.popleft()
            if kind == "bound":
                self.fleet.pod_changed(pod, self.now)
            else:
                self.fleet.pod_gone(pod.uid, self.now)

    @rule(count=st.integers(1, 4))
    def statuses_arrive(self, count: int) -> None:
        for _ in range(min(count, len(self.statuses))):
            self.fleet.node_changed(self.statuses.popleft(), self.now)

    @rule()
    def another_extender(self) -> None:
        """The last one's requests have arrived or never will; agents have shown what pods hold that the API has no more."""
        while self.sent:
            self.settle(is_done=True)
        self._agents_catch_up()
        self.pod_events.clear()
        self.statuses.clear()
        self.filtered.clear()
        self.fleet = Fleet()
        self._fill()
        self._excuse_ends()

    @rule()
    def time_passes(self) -> None:
        """Longer than an agent takes for what it sees."""
        self._agents_catch_up()
        self.pods_arrive(len(self.pod_events))
        self.statuses_arrive(len(self.statuses))
        self.now += GONE_SECONDS + 1
        finished(self.fleet.filter("probe", fleets.needs(1), [], self.now))
        for node, agent in self.agents.items():
            if not agent.waiting and all(pod.node != node for pod in self.sent.values()):
                view = self.fleet.view(MEM, node)
                assert view is not None
                assert view.free == agent.free(), "nothing is counted twice, and nothing for ever"
        self._excuse_ends()

    def _excuse_ends(self) -> None:
        """The extender knows all, and no pod waits that could come before one of its own."""
        for node, agent in self.agents.items():
            if not agent.waiting and all(pod.node != node for pod in self.sent.values()):
                agent.is_excused = False

    def _agents_catch_up(self) -> None:
        for node, agent in self.agents.items():
            while agent.events:
                agent.step()
            self.agent_publishes(node)

    # -- what holds -----------------------------------------------------------------------------------------------------

    @invariant()
    def what_was_promised_is_there(self) -> None:
        for agent in self.agents.values():
            assert not agent.late, f"{agent.late} did not get what they were promised"

    def teardown(self) -> None:
        """With all pods gone nothing stays promised."""
        while self.sent:
            self.settle(is_done=False)
        for uid in list(self.bound):
            self._delete(uid)
        self.time_passes()
        for agent in self.agents.values():
            while agent.releasing:
                agent.release()
        self.time_passes()
        assert self.fleet.promised_units() == {}


class PercentMoves(FleetMoves):
    """With limits of multiprocessors: 12 percent for each part, or what a pod's annotation sets."""

    sm_percent = 12


TestFleetMoves = FleetMoves.TestCase
TestFleetMoves.settings = settings(max_examples=examples(60), stateful_step_count=60, deadline=None)
TestPercentMoves = PercentMoves.TestCase
TestPercentMoves.settings = TestFleetMoves.settings
