"""The containers that the runtime runs, by pod: the only source for the actual end of a container.

A container counts as alive from the moment its creation was allowed until the runtime reports that its process is gone.
While the runtime is disconnected, no container is known to have ended. This does not survive a restart: the runtime reports
its containers again.
Source: containerd NRI: StopContainer comes after the process is gone, whoever ended it, and for a failed creation.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodedevice_agent.devicemanager.runtime import RunningContainer


@dataclass(frozen=True, slots=True)
class ContainerInstance:
    """One instance of a container.

    fingerprints: of the devices it was created with, by resource name. reported: what the runtime reports about an instance
    without fingerprints. without_process_since: when the runtime listed it without a process (monotonic seconds), else None.
    """

    id: str
    sandbox_id: str
    pod_uid: str
    container: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    reported: RunningContainer | None = None
    without_process_since: float | None = None


class RuntimeContainers:
    """Every instance that may have a process. Changed only by the handler of the runtime's events."""

    def __init__(self) -> None:
        # False until the runtime has listed its containers, and while it is disconnected
        self.is_synchronized = False
        self.by_pod: dict[str, dict[str, ContainerInstance]] = {}
        # the instances that were listed without a process, and when, by ID; usually none
        self._without_process: dict[str, tuple[ContainerInstance, float]] = {}

    def synchronized(self, alive: Iterable[ContainerInstance]) -> tuple[ContainerInstance, ...]:
        """Everything that the runtime runs. Returns the instances that ended while it was disconnected."""
        before = tuple(self)
        self.by_pod, self._without_process = {}, {}
        for found in alive:
            self.put(found)
        self.is_synchronized = True
        return tuple(gone for gone in before if self.find(gone.pod_uid, gone.id) is None)

    def lost(self) -> None:
        """The runtime is disconnected; its containers keep running."""
        self.is_synchronized = False

    def put(self, alive: ContainerInstance) -> None:
        """A container is being created, or more is known about it."""
        self.by_pod.setdefault(alive.pod_uid, {})[alive.id] = alive
        self._without_process.pop(alive.id, None)
        if alive.without_process_since is not None:
            self._without_process[alive.id] = (alive, alive.without_process_since)

    def ended(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        """Its process is gone. Returns the instance, or None if it was not alive."""
        of_pod = self.by_pod.get(pod_uid, {})
        gone = of_pod.pop(container_id, None)
        if gone is None:
            return None
        self._without_process.pop(container_id, None)
        if not of_pod:
            del self.by_pod[pod_uid]
        return gone

    def without_process(self) -> tuple[tuple[ContainerInstance, float], ...]:
        """Instances without a process in the runtime's last list, and when that was; none while it is disconnected."""
        return tuple(self._without_process.values()) if self.is_synchronized else ()

    def find(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        of_pod = self.by_pod.get(pod_uid)
        return None if of_pod is None else of_pod.get(container_id)

    def of_sandbox(self, pod_uid: str, sandbox_id: str) -> tuple[ContainerInstance, ...]:
        """A pod may have more than one sandbox; the older ones are terminating."""
        return tuple(a for a in self.of_pod(pod_uid) if a.sandbox_id == sandbox_id)

    def of_pod(self, pod_uid: str) -> tuple[ContainerInstance, ...]:
        return tuple(self.by_pod.get(pod_uid, {}).values())

    def is_running(self, pod_uid: str, container: str) -> bool:
        return bool(self.instances(pod_uid, container))

    def instances(self, pod_uid: str, container: str) -> tuple[ContainerInstance, ...]:
        return tuple(a for a in self.of_pod(pod_uid) if a.container == container)

    def have_ended(self, pod_uid: str, containers: Collection[str]) -> bool:
        """Whether all of these are known to have no process any more."""
        return self.is_synchronized and not any(a.container in containers for a in self.of_pod(pod_uid))

    def __iter__(self) -> Iterator[ContainerInstance]:
        for of_pod in self.by_pod.values():
            yield from of_pod.values()
