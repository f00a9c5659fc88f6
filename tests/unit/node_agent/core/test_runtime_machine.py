"""Whatever API, plugins and runtime do, in whatever order, and wherever the agent restarts: which containers run with what.

Adds to the machine of the device manager a container runtime that is right: what its containers have is what they were created
with, and they live until it ends them, whatever the agent believes. The kubelet may be behind the API, and creates containers
of pods that are gone already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from nodedevice_agent.core.container_edits import ContainerEdits
from nodedevice_agent.core.effects import Effect
from nodedevice_agent.core.injection import Given, Injection
from nodedevice_agent.core.pods import Pod
from nodedevice_agent.core.resources import PluginOptions
from nodedevice_agent.core.runtime import ContainerState, RunningContainer, Sandbox
from nodedevice_agent.core.runtime_events import RuntimeEvents
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, NRI_PLUGIN, REQUIRED_PLUGINS_ANNOTATION

from tests.unit.node_agent.core.test_device_manager_machine import (
    ALL,
    CONTAINERS,
    NAMES,
    PLUGINS_BACK,
    UIDS,
    Call,
    Limited,
    ManagerMachine,
)

NOTHING = ContainerEdits({}, (), (), {}, ())
HELD = {REQUIRED_PLUGINS_ANNOTATION: f"[ {NRI_PLUGIN} ]"}


def read_answer(response: bytes) -> ContainerEdits:
    return NOTHING


@dataclass(frozen=True)
class Process:
    """A container that runs. has: (resource name, device ID). mark: what the runtime kept of its creation."""

    sandbox: Sandbox
    id: str
    container: str
    has: frozenset[tuple[str, str]]
    mark: str

    def shown(self) -> RunningContainer:
        marked = {CONTAINER_DEVICES_ANNOTATION: self.mark} if self.mark else {}
        return RunningContainer(self.id, self.sandbox.id, self.container, ContainerState.RUNNING, annotations=marked)


class RuntimeMachine(ManagerMachine):
    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, Process] = {}
        # pods the kubelet still works on: those of the API, and those whose end it has not heard of
        self.bound: dict[str, Pod] = {}
        self.is_connected = False
        self.last_id = 0

    @initialize(waits_for_runtime=st.just(True), waits_for_intent=st.booleans(), plugins=PLUGINS_BACK)
    def begins(self, plugins: int, **options: Any) -> None:
        self.events: tuple[RuntimeEvents, ...] = ()
        super().begins(plugins, **options)
        self.a_new_agent_begins()

    def a_new_agent_begins(self) -> None:
        self.is_connected = False
        self.events = tuple(RuntimeEvents(manager, read_answer) for manager in (self.manager, self.twin))
        self.injection = Injection(self.manager, read_answer, lambda name: False)

    def the_agent_restarts(self, plugins: int) -> None:
        super().the_agent_restarts(plugins)
        self.a_new_agent_begins()

    def the_checkpoint_is_lost(self, plugins: int, comes_first: bool) -> None:
        super().the_checkpoint_is_lost(plugins, comes_first)
        self.a_new_agent_begins()

    def tell(self, event: str, *args: Any) -> None:
        """What the runtime says, if anybody listens."""
        if not self.is_connected:
            return
        first, second = (getattr(events, event)(*args) or [] for events in self.events)
        assert first == second, "equal inputs, unequal effects"
        effects: list[Effect] = first
        self.calls += [effect for effect in effects if isinstance(effect, Call)]

    # -- the kubelet and the runtime ------------------------------------------------------------------------------------

    @invariant()
    def the_kubelet_hears_of_pods(self) -> None:
        self.bound.update({pod.uid: pod for pod in self.pods.values()})

    @precondition(lambda self: self.bound)
    @rule(data=st.data(), is_held=st.sampled_from([True, True, True, False]))
    def a_container_is_created(self, data: st.DataObject, is_held: bool) -> None:
        pod = self.bound[data.draw(st.sampled_from(sorted(self.bound)))]
        container = data.draw(st.sampled_from(sorted(c.name for c in pod.containers)))
        self.creates(pod, container, is_held=is_held)

    def creates(self, pod: Pod, container: str, *, is_held: bool) -> None:
        if any(p.sandbox.uid == pod.uid and p.container == container for p in self.processes.values()):
            return
        sandbox = Sandbox(f"s-{pod.uid}", pod.name, pod.namespace, pod.uid, HELD if is_held else {})
        self.last_id += 1
        created = RunningContainer(f"id-{self.last_id}", sandbox.id, container)
        if not self.is_connected:
            if not is_held:
                self.runs(sandbox, created, frozenset(), "")
            return
        answer = self.injection.answer(sandbox, created)
        if isinstance(answer, Given):
            has = frozenset((a.resource_name, i) for a in answer.allocations for i in a.device_ids)
            self.tell("created", sandbox, created, answer, self.now)
            self.runs(sandbox, created, has, answer.edits.annotations[CONTAINER_DEVICES_ANNOTATION])
        elif answer is None:
            assert not is_held or not self.asks_for_what_is_known(pod, container)
            self.runs(sandbox, created, frozenset(), "")

    def asks_for_what_is_known(self, pod: Pod, container: str) -> bool:
        return any(n.container == container and n.resource_name in self.manager.resources for n in pod.needs())

    def runs(self, sandbox: Sandbox, created: RunningContainer, has: frozenset[tuple[str, str]], mark: str) -> None:
        self.processes[created.id] = Process(sandbox, created.id, created.name, has, mark)
        self.tell("started", sandbox, self.processes[created.id].shown())

    def everything_is_well(self) -> None:
        """A plugin that lists everything, and a runtime that is there: most of what is of interest needs both."""
        for name in NAMES:
            if name not in self.endpoints.values():
                self.a_plugin_registers(name, PluginOptions(), ALL, True)
        if not self.is_connected:
            self.the_runtime_connects()
        self.everything_is_answered()

    @rule(name=st.sampled_from(UIDS), containers=CONTAINERS)
    def a_pod_runs(self, name: str, containers: Sequence[Limited]) -> None:
        self.everything_is_well()
        self.a_pod_comes(name, containers)
        self.everything_is_answered()
        self.the_kubelet_hears_of_pods()
        for container in self.pods[name].containers:
            self.creates(self.pods[name], container.name, is_held=True)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), how=st.sampled_from(["over", "gone"]), others=CONTAINERS)
    def a_running_pod_is_over_and_another_wants_its_devices(
        self, data: st.DataObject, how: str, others: Sequence[Limited]
    ) -> None:
        process = self.processes[data.draw(st.sampled_from(sorted(self.processes)))]
        name = process.sandbox.name
        if name in self.pods and self.pods[name].uid == process.sandbox.uid:
            self.ends_in_the_api(name, how)
        self.a_pod_runs(next(uid for uid in UIDS if uid != name), others)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def a_creation_fails_later(self, data: st.DataObject) -> None:
        before = set(self.processes)
        self.a_container_is_created(data, True)
        for new in set(self.processes) - before:
            self.ends(self.processes[new])

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), is_said_twice=st.booleans())
    def a_container_ends(self, data: st.DataObject, is_said_twice: bool) -> None:
        process = self.processes[data.draw(st.sampled_from(sorted(self.processes)))]
        self.ends(process)
        if is_said_twice:
            self.tell("ended", process.sandbox.uid, process.id, self.now)

    def ends(self, process: Process) -> None:
        del self.processes[process.id]
        self.tell("ended", process.sandbox.uid, process.id, self.now)

    @rule()
    def the_kubelet_catches_up(self) -> None:
        """It ends what the API no longer has."""
        present = {pod.uid for pod in self.pods.values()}
        self.bound = {uid: pod for uid, pod in self.bound.items() if uid in present}
        for process in list(self.processes.values()):
            if process.sandbox.uid not in present:
                del self.processes[process.id]
                self.tell("sandbox_removed", process.sandbox, self.now)

    @rule(data=st.data(), ended=st.integers(0, 3), comes_back=st.booleans())
    def the_runtime_is_away(self, data: st.DataObject, ended: int, comes_back: bool) -> None:
        """Containers go on, and some end meanwhile."""
        self.tell("lost")
        self.is_connected = False
        for _ in range(min(ended, len(self.processes))):
            self.a_container_ends(data, False)
        if comes_back:
            self.the_runtime_connects()

    @rule()
    def the_runtime_connects(self) -> None:
        self.tell("lost")
        self.is_connected = True
        sandboxes = list({process.sandbox.id: process.sandbox for process in self.processes.values()}.values())
        shown = [process.shown() for process in self.processes.values()]
        self.tell("synchronized", sandboxes, shown, self.now)

    @rule()
    def containers_end(self) -> None:
        """Here the runtime says so, and nobody else."""

    # -- what must hold -------------------------------------------------------------------------------------------------

    @invariant()
    def no_device_is_in_containers_of_two_pods(self) -> None:
        users: dict[tuple[str, str], str] = {}
        for process in self.processes.values():
            for device in process.has:
                assert users.setdefault(device, process.sandbox.uid) == process.sandbox.uid, f"{device} is shared"

    @invariant()
    def what_a_container_has_is_nobody_elses(self) -> None:
        for process in self.processes.values():
            for name, device_id in process.has:
                holder = self.manager.book.holders(name).get(device_id) if not self.manager.is_recovering else None
                assert holder in (None, process.sandbox.uid)
                assert holder is not None or self.manager.is_recovering, f"{device_id} is free while {process} has it"

    @invariant()
    def whoever_runs_without_is_known(self) -> None:
        if not self.is_connected:
            return
        for process in self.processes.values():
            for allocation in self.manager.book.of_container(process.sandbox.uid, process.container):
                if allocation.response is None:
                    # by what it would be recognised is not known until the plugin has answered anew
                    continue
                lacks = not {(allocation.resource_name, i) for i in allocation.device_ids} <= process.has
                uid, name = process.sandbox.uid, allocation.resource_name
                assert self.events[0].runs_without(uid, process.container, name) == lacks

    @invariant()
    def what_is_over_is_free(self) -> None:
        if not self.is_connected:
            return
        users = {(process.sandbox.uid, process.container) for process in self.processes.values()}
        for allocation in self.manager.book:
            is_prepared = self.manager.pre_starts.is_late(allocation.pod_uid)
            if self.manager.book.is_releasing(allocation.pod_uid) and not is_prepared:
                held = {a.container for a in self.manager.book.of_pod(allocation.pod_uid)}
                assert any((allocation.pod_uid, container) in users for container in held)


RuntimeMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestRuntime = RuntimeMachine.TestCase
