"""Which containers the runtime has alive, by pod; the one source for the true end of a container.

Alive is a container from the moment it may come to be (its creation was allowed) until the runtime says that its process is gone.
While the runtime is away nothing is known to have ended. What is here does not survive a restart: the runtime says it anew.
Source: containerd NRI: StopContainer comes after the process is gone, whoever ended it, and for a creation that failed.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from nodedevice_agent.devicemanager.runtime import RunningContainer


@dataclass(frozen=True, slots=True)
class ContainerInstance:
    """One instance of a container.

    marks: what it was created with, resource name to a fingerprint of the devices. seen: what the runtime reports about one
    without marks. without_process_since: when the runtime listed it without a process (monotonic seconds), else None.
    """

    id: str
    sandbox_id: str
    pod_uid: str
    container: str
    marks: Mapping[str, str] = field(default_factory=dict)
    seen: RunningContainer | None = None
    without_process_since: float | None = None


class RuntimeContainers:
    """Every instance that may have a process. Only its owner changes it."""

    def __init__(self) -> None:
        # False as long as the runtime has not said what it runs, or no longer tells what happens to it
        self.is_synchronized = False
        self._by_pod: dict[str, dict[str, ContainerInstance]] = {}
        # of these, those that were found without a process, and when, by ID; mostly none
        self._without_process: dict[str, tuple[ContainerInstance, float]] = {}

    def synchronized(self, alive: Iterable[ContainerInstance]) -> tuple[ContainerInstance, ...]:
        """All that the runtime runs. Returns what ended while nobody was told."""
        before = tuple(self)
        self._by_pod, self._without_process = {}, {}
        for found in alive:
            self.put(found)
        self.is_synchronized = True
        return tuple(gone for gone in before if self.find(gone.pod_uid, gone.id) is None)

    def lost(self) -> None:
        """The runtime is away; what it ran goes on."""
        self.is_synchronized = False

    def put(self, alive: ContainerInstance) -> None:
        """A container comes to be, or is known better."""
        self._by_pod.setdefault(alive.pod_uid, {})[alive.id] = alive
        self._without_process.pop(alive.id, None)
        if alive.without_process_since is not None:
            self._without_process[alive.id] = (alive, alive.without_process_since)

    def ended(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        """Its process is gone. Returns it, or None for one that was not alive."""
        of_pod = self._by_pod.get(pod_uid, {})
        gone = of_pod.pop(container_id, None)
        if gone is None:
            return None
        self._without_process.pop(container_id, None)
        if not of_pod:
            del self._by_pod[pod_uid]
        return gone

    def without_process(self) -> tuple[tuple[ContainerInstance, float], ...]:
        """Those that had no process when the runtime last told what there is, and when that was; while it is away, none."""
        return tuple(self._without_process.values()) if self.is_synchronized else ()

    def find(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        of_pod = self._by_pod.get(pod_uid)
        return None if of_pod is None else of_pod.get(container_id)

    def of_sandbox(self, pod_uid: str, sandbox_id: str) -> tuple[ContainerInstance, ...]:
        """A pod may have more than one sandbox, the older of them on its way out."""
        return tuple(a for a in self.of_pod(pod_uid) if a.sandbox_id == sandbox_id)

    def of_pod(self, pod_uid: str) -> tuple[ContainerInstance, ...]:
        return tuple(self._by_pod.get(pod_uid, {}).values())

    def is_running(self, pod_uid: str, container: str) -> bool:
        return bool(self.instances(pod_uid, container))

    def instances(self, pod_uid: str, container: str) -> tuple[ContainerInstance, ...]:
        return tuple(a for a in self.of_pod(pod_uid) if a.container == container)

    def have_ended(self, pod_uid: str, containers: Collection[str]) -> bool:
        """Whether it is known that none of these has a process any more."""
        return self.is_synchronized and not any(a.container in containers for a in self.of_pod(pod_uid))

    def __iter__(self) -> Iterator[ContainerInstance]:
        for of_pod in self._by_pod.values():
            yield from of_pod.values()
