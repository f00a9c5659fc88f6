"""Invariants about the devices of running containers, for any order of events of API, plugins, runtime and agent restarts.

Adds a container runtime to the device manager's machine, as the source of truth: containers have the devices they were created
with, and they run until the runtime ends them, whatever the agent's state is. The kubelet may be behind the API and may create
containers of pods that are gone already. A container is Created until it is started, which may take as long as the kubelet
waits for it, or never happen. One that the runtime cannot reach runs, and is not listed; it has ended when the agent gives it up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule
from msgspec import structs
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, Sandbox
from nodedevice_agent.devicemanager.snapshot import Snapshot, snapshot
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.creation_hooks import CreationHooks
from nodedevice_agent.runtime.injection import Grant, Injection
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, NRI_PLUGIN, REQUIRED_PLUGINS_ANNOTATION

from tests.examples import examples
from tests.unit.node_agent.devicemanager.test_manager_machine import (
    ALL,
    CONTAINERS,
    NAMES,
    PLUGINS_BACK,
    UIDS,
    Limited,
    ManagerMachine,
)

# runtimeRequestTimeout: a start that takes longer is cancelled
KUBELET_WAITS_SECONDS = 120.0
HELD = {REQUIRED_PLUGINS_ANNOTATION: f"[ {NRI_PLUGIN} ]"}


@dataclass(frozen=True)
class Process:
    """A container. has: (resource name, device ID). mark: the annotation from its creation that the runtime reports.

    starts_until: for one that does not run yet, when the kubelet gives up its start; it never runs from then on. is_unknown: the
    runtime does not list it.
    """

    sandbox: Sandbox
    id: str
    container: str
    has: frozenset[tuple[str, str]]
    mark: str
    starts_until: float | None = None
    is_unknown: bool = False

    def shown(self) -> RunningContainer:
        marked = {CONTAINER_DEVICES_ANNOTATION: self.mark} if self.mark else {}
        state, pid = (ContainerState.RUNNING, 7) if self.starts_until is None else (ContainerState.CREATED, 0)
        box = self.sandbox
        return RunningContainer(self.id, box.id, self.container, state, annotations=marked, pid=pid, pod_uid=box.uid)

    def may_run(self, now: float) -> bool:
        return self.starts_until is None or now < self.starts_until


class RuntimeMachine(ManagerMachine):
    def __init__(self) -> None:
        super().__init__()
        self.processes: dict[str, Process] = {}
        # ended while the agent was not connected, and not removed yet
        self.stopped: list[Process] = []
        # pods of the kubelet: those of the API, and those whose end it has not seen yet
        self.bound: dict[str, Pod] = {}
        self.last_id = 0

    @initialize(waits_for_runtime=st.just(True), waits_for_cordons=st.booleans(), plugins=PLUGINS_BACK)
    def begins(self, plugins: int, **options: Any) -> None:
        self.events: tuple[ContainerEvents, ...] = ()
        super().begins(plugins, **options)
        self.a_new_agent_begins()

    def a_new_agent_begins(self) -> None:
        self.is_connected = False
        self.events = tuple(ContainerEvents(manager) for manager in (self.manager, self.twin))
        self.injection = Injection(self.manager, CreationHooks(self.manager))

    def the_agent_restarts(self, plugins: int) -> None:
        super().the_agent_restarts(plugins)
        self.a_new_agent_begins()

    def the_checkpoint_is_lost(self, plugins: int, comes_first: bool) -> None:
        """With it the agent forgets which containers are not listed."""
        self.processes = {i: replace(process, is_unknown=False) for i, process in self.processes.items()}
        super().the_checkpoint_is_lost(plugins, comes_first)
        self.a_new_agent_begins()

    def runtime_lost(self) -> None:
        self.is_connected = False
        for manager in (self.manager, self.twin):
            manager.containers.lost()

    def runtime_event(self, event: str, *args: Any) -> None:
        """An event of the runtime, if the agent is connected."""
        if not self.is_connected:
            return
        for events in self.events:
            getattr(events, event)(*args)
        effects = self.manager.settle(self.now)
        assert effects == self.twin.settle(self.now), "equal inputs, unequal effects"
        self.carry_out(effects)

    def seen(self, name: str) -> Snapshot:
        return snapshot(self.manager, name, self.events[0].not_injected) if self.events else super().seen(name)

    # -- the kubelet and the runtime ------------------------------------------------------------------------------------

    @invariant()
    def the_kubelet_syncs_its_pods(self) -> None:
        self.bound.update({pod.uid: pod for pod in self.pods.values()})

    @precondition(lambda self: self.bound)
    @rule(data=st.data(), is_held=st.sampled_from([True, True, True, False]), starts=st.booleans())
    def a_container_is_created(self, data: st.DataObject, is_held: bool, starts: bool) -> None:
        pod = self.bound[data.draw(st.sampled_from(sorted(self.bound)))]
        container = data.draw(st.sampled_from(sorted(c.name for c in pod.containers)))
        self.creates(pod, container, is_held=is_held, starts=starts)

    def creates(self, pod: Pod, container: str, *, is_held: bool, starts: bool = True) -> None:
        if any(p.may_run(self.now) for p in self.instances(pod.uid, container)):
            return
        sandbox = Sandbox(f"s-{pod.uid}", pod.name, pod.namespace, pod.uid, HELD if is_held else {})
        self.last_id += 1
        created = RunningContainer(f"id-{self.last_id}", sandbox.id, container)
        if not self.is_connected:
            if not is_held:
                self.comes(Process(sandbox, created.id, container, frozenset(), ""), starts)
            return
        self.runtime_event("creating", pod.uid, container)
        decision = self.injection.decide(sandbox, container)
        if isinstance(decision, Grant):
            has = frozenset((a.resource_name, i) for a in decision.version.allocations for i in a.device_ids)
            self.runtime_event("created", sandbox, created, decision)
            mark = decision.edits.annotations[CONTAINER_DEVICES_ANNOTATION]
            self.comes(Process(sandbox, created.id, container, has, mark), starts)
        elif decision is None:
            assert not is_held or not self.requests_known_resources(pod, container)
            self.comes(Process(sandbox, created.id, container, frozenset(), ""), starts)

    def instances(self, pod_uid: str, container: str) -> list[Process]:
        return [p for p in self.processes.values() if (p.sandbox.uid, p.container) == (pod_uid, container)]

    def requests_known_resources(self, pod: Pod, container: str) -> bool:
        return any(n.container == container and n.resource_name in self.manager.resources for n in pod.device_requests)

    def comes(self, process: Process, starts: bool) -> None:
        self.processes[process.id] = replace(process, starts_until=self.now + KUBELET_WAITS_SECONDS)
        if starts:
            self.runs(self.processes[process.id])

    def runs(self, process: Process) -> None:
        self.processes[process.id] = started = replace(process, starts_until=None)
        self.runtime_event("started", started.sandbox, started.shown())

    @rule()
    def a_created_container_is_started(self) -> None:
        """One that the runtime cannot reach is in state Unknown, and the runtime refuses to start it."""
        for process in list(self.processes.values()):
            if process.starts_until is not None and process.may_run(self.now) and not process.is_unknown:
                self.runs(process)

    @precondition(lambda self: self.is_connected)
    @invariant()
    def the_agent_drops_containers_that_were_never_started(self) -> None:
        for alive in self.events[0].overdue(self.now):
            if alive.unlisted_since is not None:
                self.processes.pop(alive.id, None)
            self.runtime_event("ended", alive.pod_uid, alive.id)
        later = self.events[0].next_deadline()
        assert later is None or later > self.now, "a deadline that has passed stays"

    def everything_is_well(self) -> None:
        """A plugin that lists everything, and a connected runtime: most interesting states need both."""
        for name in NAMES:
            if name not in self.endpoints.values():
                self.a_plugin_registers(name, PluginOptions(), ALL, True)
        if not self.is_connected:
            self.the_runtime_connects()
        self.everything_is_answered()

    @rule(name=st.sampled_from(UIDS), containers=CONTAINERS)
    def a_pod_runs(self, name: str, containers: Sequence[Limited], starts: bool = True) -> None:
        self.everything_is_well()
        self.a_pod_comes(name, containers)
        self.everything_is_answered()
        self.the_kubelet_syncs_its_pods()
        for container in self.pods[name].containers:
            self.creates(self.pods[name], container.name, is_held=True, starts=starts)

    @rule(name=st.sampled_from(UIDS), containers=CONTAINERS)
    def a_pod_not_injected(self, name: str, containers: Sequence[Limited]) -> None:
        """Created while the agent was not connected, without being held back. Its devices may be pending or allocated then."""
        self.runtime_lost()
        self.a_pod_comes(name, containers)
        self.the_kubelet_syncs_its_pods()
        for container in self.pods[name].containers:
            self.creates(self.pods[name], container.name, is_held=False)
        self.the_runtime_connects()

    @rule(
        name=st.sampled_from(UIDS),
        containers=CONTAINERS,
        how=st.sampled_from(["over", "gone"]),
        before=st.sampled_from([0.0, 5.0, 60.0]),
        after=st.sampled_from([5.0, 60.0, 400.0]),
    )
    def a_pod_ends_while_it_is_started(
        self, name: str, containers: Sequence[Limited], how: str, before: float, after: float
    ) -> None:
        """The agent connects between the creation and the start."""
        self.a_pod_runs(name, containers, starts=False)
        self.the_runtime_connects()
        self.time_passes(before)
        self.ends_in_the_api(name, how)
        self.the_agent_drops_containers_that_were_never_started()
        self.time_passes(after)

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), how=st.sampled_from(["over", "gone"]), others=CONTAINERS)
    def a_running_pod_is_followed_by_another(self, data: st.DataObject, how: str, others: Sequence[Limited]) -> None:
        process = self.processes[data.draw(st.sampled_from(sorted(self.processes)))]
        name = process.sandbox.name
        if name in self.pods and self.pods[name].uid == process.sandbox.uid:
            self.ends_in_the_api(name, how)
        self.a_pod_runs(next(uid for uid in UIDS if uid != name), others)

    @precondition(lambda self: self.bound)
    @rule(data=st.data())
    def a_creation_fails_later(self, data: st.DataObject) -> None:
        before = set(self.processes)
        self.a_container_is_created(data, True, False)
        for new in set(self.processes) - before:
            self.ends(self.processes[new])

    @precondition(lambda self: self.processes)
    @rule(data=st.data(), is_reported_twice=st.booleans())
    def a_container_ends(self, data: st.DataObject, is_reported_twice: bool) -> None:
        process = self.processes[data.draw(st.sampled_from(sorted(self.processes)))]
        self.ends(process)
        if is_reported_twice:
            self.runtime_event("ended", process.sandbox.uid, process.id)

    def ends(self, process: Process) -> None:
        del self.processes[process.id]
        if not self.is_connected:
            self.stopped.append(process)
        self.runtime_event("ended", process.sandbox.uid, process.id)

    @rule()
    def the_kubelet_catches_up(self) -> None:
        """It ends pods that the API no longer has. A sandbox with a container that the runtime cannot reach cannot be removed."""
        present = {pod.uid for pod in self.pods.values()}
        self.bound = {uid: pod for uid, pod in self.bound.items() if uid in present}
        unreached = {process.sandbox.uid for process in self.processes.values() if process.is_unknown}
        for process in list(self.processes.values()):
            if process.sandbox.uid in present or process.is_unknown:
                continue
            if process.sandbox.uid in unreached:
                self.ends(process)
            else:
                del self.processes[process.id]
                self.runtime_event("sandbox_removed", process.sandbox)

    @rule(data=st.data(), ended=st.integers(0, 3), removed=st.booleans(), comes_back=st.booleans())
    def the_runtime_disconnects(self, data: st.DataObject, ended: int, removed: bool, comes_back: bool) -> None:
        """Containers keep running, and some end meanwhile, and may be removed."""
        self.runtime_lost()
        for _ in range(min(ended, len(self.processes))):
            self.a_container_ends(data, False)
        if removed:
            self.stopped.clear()
        if comes_back:
            self.the_runtime_connects()

    @precondition(lambda self: self.is_connected and self.processes)
    @rule(data=st.data(), is_unknown=st.booleans())
    def the_runtime_restarts(self, data: st.DataObject, is_unknown: bool) -> None:
        """It may not reach a container then, or reach it again."""
        unreached = data.draw(st.sampled_from(sorted(self.processes)))
        self.processes[unreached] = replace(self.processes[unreached], is_unknown=is_unknown)
        self.the_runtime_connects()

    @rule(lists_sandboxes=st.booleans())
    def the_runtime_connects(self, lists_sandboxes: bool = True) -> None:
        self.runtime_lost()
        self.is_connected = True
        reached = [process for process in self.processes.values() if not process.is_unknown]
        sandboxes = list({process.sandbox.id: process.sandbox for process in reached}.values())
        shown = [process.shown() for process in reached]
        shown += [structs.replace(process.shown(), state=ContainerState.STOPPED) for process in self.stopped]
        self.stopped.clear()
        self.runtime_event("synchronized", sandboxes if lists_sandboxes else [], shown, self.now)

    @rule()
    def containers_end(self) -> None:
        """In this machine only the runtime reports it."""

    # -- invariants ----------------------------------------------------------------------------------------------------

    def possibly_running(self) -> list[Process]:
        return [process for process in self.processes.values() if process.may_run(self.now)]

    @invariant()
    def no_device_is_in_containers_of_two_pods(self) -> None:
        users: dict[tuple[str, str], str] = {}
        for process in self.possibly_running():
            for device in process.has:
                assert users.setdefault(device, process.sandbox.uid) == process.sandbox.uid, f"{device} is shared"

    @precondition(lambda self: not self.manager.is_recovering)
    @invariant()
    def a_containers_devices_belong_to_its_pod(self) -> None:
        for process in self.possibly_running():
            for name, device_id in process.has:
                assert self.manager.resources[name].use.holders.get(device_id) == process.sandbox.uid, process

    @precondition(lambda self: self.is_connected)
    @invariant()
    def containers_without_their_devices_are_known(self) -> None:
        for process in self.processes.values():
            for allocation in self.manager.book.of_container(process.sandbox.uid, process.container):
                if allocation.response is None:
                    # it cannot be recognised until the plugin's response is known again
                    continue
                due = {(allocation.resource_name, i) for i in allocation.device_ids}
                uid, name = process.sandbox.uid, allocation.resource_name
                lacks = any(not due <= one.has for one in self.known_instances(process))
                assert self.events[0].not_injected(uid, process.container, name) == lacks

    def known_instances(self, process: Process) -> list[Process]:
        """Of one container: the agent drops instances that were never started once it knows, but no running ones."""
        known = self.manager.containers.instances(process.sandbox.uid, process.container)
        found = self.instances(process.sandbox.uid, process.container)
        assert {one.id for one in found if one.starts_until is None} <= {alive.id for alive in known}
        listed = {alive.id for alive in known if alive.unlisted_since is None}
        return [one for one in found if one.id in listed]

    @invariant()
    def no_container_runs_with_released_devices(self) -> None:
        for name in self.manager.resources:
            assert not self.events[0].using_released(name)

    @precondition(lambda self: self.is_connected)
    @invariant()
    def devices_of_ended_pods_are_free(self) -> None:
        users = {(process.sandbox.uid, process.container) for process in self.processes.values()}
        users |= {(unlisted.pod_uid, unlisted.container) for unlisted in self.manager.containers.unlisted()}
        for allocation in self.manager.book:
            is_prepared = self.manager.pre_starts.has_orphaned_call(allocation.pod_uid)
            if allocation.pod_uid in self.manager.book.releasing and not is_prepared:
                held = {a.container for a in self.manager.book.of_pod(allocation.pod_uid)}
                assert any((allocation.pod_uid, container) in users for container in held)


RuntimeMachine.TestCase.settings = settings(max_examples=examples(80), stateful_step_count=40, deadline=None)
TestRuntime = RuntimeMachine.TestCase
