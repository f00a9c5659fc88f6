"""What the runtime tells of containers, and what that means for devices: who still has them, and who runs without them.

Source: containerd NRI. Of a creation that failed it tells the end as of any other container, once or more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import without
from nodedevice_agent.devicemanager.effects import Effect, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.running_containers import ContainerInstance
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, Sandbox
from nodedevice_agent.runtime import marks
from nodedevice_agent.runtime.injection import Given
from nodedevice_agent.runtime.prestart import instance_begun, instance_ended

# After the end of its pod, how long a container that was found without a process may still come to be started: as long as the
# kubelet waits for its call (runtimeRequestTimeout), which may be under way unseen. A runtime that is killed while it starts one
# says Created ever after, and tells the end when the kubelet clears it away, a minute later; a kubelet that is away does not.
CREATED_SECONDS = 120.0


class RuntimeEvents:
    """Told of everything that happens to containers; returns effects."""

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager
        self._is_first = True

    # -- what happens ---------------------------------------------------------------------------------------------------

    def created(self, sandbox: Sandbox, container: RunningContainer, given: Given, now: float) -> list[Effect]:
        """Its creation with these devices is allowed: from now on it may have a process."""
        what = marks.marks_of(given.allocations)
        containers = self._manager.containers
        effects: list[Effect] = []
        for earlier in containers.instances(sandbox.uid, container.name):
            # the kubelet has given up one that it had not started, and never comes back to it
            if earlier.without_process_since is not None:
                containers.ended(sandbox.uid, earlier.id)
                effects = self._published(earlier)
        containers.put(ContainerInstance(container.id, sandbox.id, sandbox.uid, container.name, what))
        return effects + instance_begun(self._manager, sandbox.uid, container.name, now)

    def started(self, sandbox: Sandbox, container: RunningContainer) -> list[Effect]:
        """It has a process; of one that was given nothing here, this is the first that is of interest."""
        if self._is_nobodys(sandbox.uid):
            return []
        known = self._manager.containers.find(sandbox.uid, container.id)
        if known is not None:
            if known.without_process_since is None:
                return []
            self._manager.containers.put(replace(known, without_process_since=None))
            return self._published(known)
        new = _seen(sandbox, container)
        self._manager.containers.put(new)
        return self._published(new)

    def ended(self, pod_uid: str, container_id: str, now: float) -> list[Effect]:
        """Its process is gone, or never was."""
        gone = self._manager.containers.ended(pod_uid, container_id)
        return [] if gone is None else self._after(gone, now)

    def sandbox_removed(self, sandbox: Sandbox, now: float) -> list[Effect]:
        """The pod is gone from the runtime."""
        effects: list[Effect] = []
        for alive in self._manager.containers.of_sandbox(sandbox.uid, sandbox.id):
            effects += self.ended(sandbox.uid, alive.id, now)
        return effects

    def synchronized(
        self, sandboxes: Iterable[Sandbox], containers: Iterable[RunningContainer], now: float
    ) -> list[Effect]:
        """All that there is; whatever is not in it has ended."""
        by_id = {sandbox.id: sandbox for sandbox in sandboxes}
        present = [
            self._known_again(_found(by_id[found.sandbox_id], found, now))
            for found in containers
            if found.state is not ContainerState.STOPPED and found.sandbox_id in by_id
        ]
        gone = self._manager.containers.synchronized(found for found in present if not self._is_nobodys(found.pod_uid))
        effects: list[Effect] = []
        for alive in gone:
            effects += self._after(alive, now)
        for pod_uid in sorted(self._manager.book.pod_uids()):
            effects += self._settle(pod_uid, now)
        self._is_first = False
        return effects + [Publish(name) for name in sorted(self._manager.resources)]

    def lost(self) -> None:
        """The runtime is away: nothing is known to end until it has told again what it runs."""
        self._manager.containers.lost()

    # -- time -----------------------------------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When never_started() may have more, monotonic seconds. Another after anything that happens to containers or pods."""
        return min((at for _, at in self._unstarted()), default=None)

    def never_started(self, now: float) -> tuple[ContainerInstance, ...]:
        """Containers that were found without a process and were not started since, of pods that are over: they have ended."""
        return tuple(alive for alive, at in self._unstarted() if at <= now)

    # -- reads ----------------------------------------------------------------------------------------------------------

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether a container runs that asked for this and was not given it, or was given other devices than are recorded."""
        instances = self._manager.containers.instances(pod_uid, container)
        allocation = self._manager.book.of(pod_uid, container, resource_name) if instances else None
        return any(self._lacks(alive, resource_name, allocation) for alive in instances)

    def runs_on(self, resource_name: str) -> tuple[ContainerInstance, ...]:
        """Containers that run and were created with devices which count as given back, and which another pod may have by now.

        This must not be. It can be where a runtime starts a container that had ended by all that was known, or where a lost
        checkpoint was made good from an API that had forgotten the pod.
        """
        manager = self._manager
        if manager.is_recovering:
            return ()
        marked = (a for a in manager.containers if resource_name in a.marks and a.without_process_since is None)
        return tuple(
            alive for alive in marked if manager.book.of(alive.pod_uid, alive.container, resource_name) is None
        )

    # -- how it is done -------------------------------------------------------------------------------------------------

    def _unstarted(self) -> Iterator[tuple[ContainerInstance, float]]:
        """With when that is believed; only of pods that are over, as the kubelet may start a container of any other."""
        for alive, found_at in self._manager.containers.without_process():
            over_since = self._manager.book.releasing_since(alive.pod_uid)
            if over_since is not None:
                yield alive, max(found_at, over_since) + CREATED_SECONDS

    def _lacks(self, alive: ContainerInstance, resource_name: str, allocation: Allocation | None) -> bool:
        mark = alive.marks.get(resource_name)
        if mark is not None or allocation is None or alive.seen is None:
            return allocation is None or mark != marks.marks_of([allocation])[resource_name]
        if allocation.response is None:
            # nobody knows by what to recognise them until the plugin has answered anew
            return False
        if allocation.edits is None:
            return True
        pod = self._manager.pod(alive.pod_uid)
        own = pod.container_settings(alive.container) if pod is not None else NO_SETTINGS
        left, passed = without(allocation.edits, own.envs, own.paths)
        if passed and left.is_empty:
            # it would be the same container with what the plugin answered
            return False
        return not marks.shows(alive.seen, left)

    def _is_nobodys(self, pod_uid: str) -> bool:
        """A pod that is known to ask for nothing; most are, and nothing is kept of them."""
        pod = self._manager.pod(pod_uid)
        return pod is not None and not pod.device_requests and not self._manager.book.has_pod(pod_uid)

    def _known_again(self, found: ContainerInstance) -> ContainerInstance:
        """What was given here, as it was; a runtime may not show the mark."""
        before = self._manager.containers.find(found.pod_uid, found.id)
        return replace(found, marks=before.marks, seen=None) if before is not None and before.marks else found

    def _after(self, gone: ContainerInstance, now: float) -> list[Effect]:
        manager = self._manager
        if not manager.book.of_container(gone.pod_uid, gone.container):
            return self._published(gone)
        if manager.book.is_releasing(gone.pod_uid):
            return self._settle(gone.pod_uid, now)
        return instance_ended(manager, gone.pod_uid, gone.container, now) + self._published(gone)

    def _settle(self, pod_uid: str, now: float) -> list[Effect]:
        """Free the devices of a pod that is over and runs no more; after a restart, prepare anew what does not run."""
        manager = self._manager
        holding = sorted({allocation.container for allocation in manager.book.of_pod(pod_uid)})
        if manager.book.is_releasing(pod_uid):
            return manager.containers_ended(pod_uid, now) if manager.containers.have_ended(pod_uid, holding) else []
        effects: list[Effect] = []
        for container in holding if self._is_first else ():
            # whether it has run since it was last prepared, nobody knows
            effects += instance_ended(manager, pod_uid, container, now)
        return effects

    def _published(self, alive: ContainerInstance) -> list[Effect]:
        """What may be another by its coming or its end."""
        pod = self._manager.pod(alive.pod_uid)
        names = {a.resource_name for a in self._manager.book.of_pod(alive.pod_uid)} | alive.marks.keys()
        names |= {need.resource_name for need in pod.device_requests} if pod is not None else set()
        return [Publish(name) for name in sorted(names & self._manager.resources.keys())]


def _seen(sandbox: Sandbox, container: RunningContainer) -> ContainerInstance:
    """A container that runs already, as the runtime shows it."""
    what = marks.read(container)
    return ContainerInstance(container.id, sandbox.id, sandbox.uid, container.name, what, None if what else container)


def _found(sandbox: Sandbox, container: RunningContainer, now: float) -> ContainerInstance:
    """One of those that the runtime lists."""
    has_no_process = container.state is ContainerState.CREATED and container.pid == 0
    return replace(_seen(sandbox, container), without_process_since=now if has_no_process else None)
