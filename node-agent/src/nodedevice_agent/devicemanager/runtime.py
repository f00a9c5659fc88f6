"""The interface between the agent and a container runtime, and the containers that the runtime runs.

A protocol client (nri) connects to the runtime and calls a RuntimeHandler, which decides.
RuntimeContainers is the only source for the actual end of a container. A container counts as alive from the moment its creation was
allowed until the runtime reports that its process is gone: one that the runtime leaves out of its list may live on. While the
runtime is disconnected, no container is known to have ended. Only those left out survive a restart: the others are listed again.
Source: containerd/nri pkg/api/api.proto @ v0.12 (the fields of a pod sandbox and a container). StopContainer comes after any end of
the process, and for a failed creation.
"""

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct, field

from nodedevice_agent.devicemanager.container_edits import ContainerEdits

# Environment variables and device files of one container that are compared with edits: twice the number of a namespace with 250
# Services, which the kubelet describes in seven variables each.
MOST_SHOWN = 4096


class ContainerState(Enum):
    UNKNOWN = "Unknown"
    CREATED = "Created"
    PAUSED = "Paused"
    RUNNING = "Running"
    STOPPED = "Stopped"


class RuntimeDevice(NamedTuple):
    """A device file inside a container, as the runtime reports it. type: c, b, u or p."""

    path: str
    type: str
    major: int
    minor: int


class ShownSettings(Struct, frozen=True, gc=False):
    """digests: of a container's environment, which may have megabytes, and its device files; four bytes each. None: there are more
    than MOST_SHOWN, and any may be among them.
    """

    digests: bytes | None

    def may_have(self, envs: Mapping[str, str], paths: Iterable[str]) -> bool:
        """Whether all of these environment variables and device files are among them."""
        if self.digests is None:
            return True
        shown = array("I")
        shown.frombytes(self.digests)
        return set(_digests((f"{name}={value}" for name, value in envs.items()), paths)) <= set(shown)


def shown_settings(env: Collection[str], paths: Collection[str]) -> ShownSettings:
    """env: NAME=value. paths: of device files in the container."""
    if len(env) + len(paths) > MOST_SHOWN:
        return ShownSettings(None)
    return ShownSettings(array("I", _digests(env, paths)).tobytes())


def _digests(env: Iterable[str], paths: Iterable[str]) -> Iterator[int]:
    yield from (crc32(entry.encode()) for entry in env)
    # no environment variable begins with a zero byte
    yield from (crc32(f"\0{path}".encode()) for path in paths)


class Sandbox(Struct, frozen=True, gc=False):
    """A pod as the runtime knows it. annotations: as far as this agent reads them. uid: as the kubelet passed it; of a static pod
    the annotation kubernetes.io/config.hash of its mirror pod, not the pod's own UID.
    """

    id: str
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)


class RunningContainer(Struct, frozen=True, gc=False):
    """A container as the runtime knows it; in create_container, as it will be created.

    env: in create_container, the variables that the handler reads, NAME=value, in the runtime's order. devices: without those of
    CDI devices; in a list, only of containers with a mark of this agent. annotations: that mark, and in create_container names of
    CDI devices. shown: the settings of a container without a mark. pid: 0 without a process. pod_uid: "" if not reported; the
    sandbox also has it. user: of its process; 0, root, if not reported. cdi_devices: names of devices that the kubelet requests, of
    its own plugins and of claims. null_mounts: in create_container, the paths at which the host's /dev/null is mounted.
    """

    id: str
    sandbox_id: str
    name: str
    state: ContainerState = ContainerState.UNKNOWN
    env: tuple[str, ...] = ()
    devices: tuple[RuntimeDevice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0
    pod_uid: str = ""
    user: int = 0
    cdi_devices: tuple[str, ...] = ()
    null_mounts: tuple[str, ...] = ()
    shown: ShownSettings | None = None


class Validator(Enum):
    """NRI's default_validator: it rejects containers whose annotations require a plugin that is not connected."""

    NOT_SEEN = "not known yet"
    ON = "on"
    OFF = "off"
    MISSING = "not in this release of the runtime"


class DeviceOwner(NamedTuple):
    """The owner of the device files in a container. 0: the owner, or the group, of the host's file."""

    uid: int = 0
    gid: int = 0


class CreationSettings(Struct, frozen=True, gc=False):
    """references: environment variables that the command refers to and its pod does not set; None: unknown, so it may be any."""

    owner: DeviceOwner = DeviceOwner()
    references: frozenset[str] | None = frozenset()


class InjectionRefused(Exception):
    """This container must not be created. The message, for the pod's Event, names the cause and the remedy."""


class RuntimeHandler:
    """Receives the runtime's events, in order, in the event loop: no method may block. This one injects nothing. When
    create_container or validate raises or takes longer than a second, the container does not start, and the kubelet retries.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        """Registered with the runtime, after its first list. validator: NOT_SEEN or MISSING, as far as known by then."""

    def validator_seen(self, validator: Validator) -> None:
        """ON or OFF: reported with each created container, usually unchanged."""

    def runtime_disconnected(self, reason: str) -> None:
        """Disconnected, or not connected yet. reason: a sentence with the remedy, the same as long as nothing changed."""

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        """All sandboxes and containers that the runtime can reach, stopped ones included; once for each connection, before
        `runtime_connected`. containerd omits live ones in state Unknown, for example after its restart while a shim hangs.
        """

    def reads_variable(self, entry: str) -> bool:
        """Whether create_container reads this environment variable, NAME=value."""
        return False

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        """The edits for its devices, or None. May wait briefly: the runtime starts no other then. Raises InjectionRefused."""
        return None

    def check_files(self, sandbox: Sandbox, container: str, numbers: Collection[str]) -> None:
        """The device files of the edits have these numbers, such as c188:0. container: its name. Raises InjectionRefused."""

    async def creation_settings(self, sandbox: Sandbox, container: RunningContainer) -> CreationSettings:
        """Settings for a container for which create_container gave edits. Raises InjectionRefused."""
        return CreationSettings()

    def creation_adjusted(
        self, sandbox: Sandbox, container: RunningContainer, devices: tuple[RuntimeDevice, ...]
    ) -> None:
        """The container is being created with these device files, unless creation_refused or container_ended follows."""

    def creation_refused(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The runtime did not create a container for which create_container gave edits. Not every runtime reports its end: CRI-O
        undoes a creation only after the plugins have responded.
        """

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The final check, after every plugin of the runtime has made its adjustments. Raises InjectionRefused."""

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The container's process has started, and may have ended meanwhile. Never after its container_ended."""

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Its process is gone, or it never had one. May be called more than once, and for unknown containers. A sandbox that the
        runtime has removed by then has empty fields.
        """

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """The pod is gone from the runtime, with all its containers. May be called more than once, or not at all: containerd 2.4
        does not report it for sandboxes that are older than its own last restart.
        """


class ContainerInstance(Struct, frozen=True, gc=False):
    """fingerprints: of the devices it was created with, by resource name. reported: what the runtime shows of one without
    fingerprints. without_process_since, unlisted_since: when the runtime listed it without a process, or not at all (monotonic
    seconds). devices: its files, with fingerprints. is_begun: whether it may ever have had a process; not while only its creation
    is allowed.
    """

    id: str
    sandbox_id: str
    pod_uid: str
    container: str
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    reported: ShownSettings | None = None
    without_process_since: float | None = None
    unlisted_since: float | None = None
    devices: tuple[RuntimeDevice, ...] = ()
    is_begun: bool = True

    @property
    def is_doubtful(self) -> bool:
        """Whether it may have ended without a report."""
        return self.without_process_since is not None or self.unlisted_since is not None


class UnlistedContainer(Struct, frozen=True, gc=False):
    """An instance that the runtime leaves out of its list, for the agent's next start; renamed as in the checkpoint's file."""

    pod_uid: str = field(name="PodUID")
    container: str = field(name="ContainerName")
    id: str = field(name="ContainerID")
    sandbox_id: str = field(name="SandboxID")


class RuntimeContainers(Struct, eq=False):
    """Every instance that may have a process. Changed only by the handler of the runtime's events."""

    # False until the runtime has listed its containers, and while it is disconnected
    is_synchronized: bool = False
    by_pod: dict[str, dict[str, ContainerInstance]] = {}
    # by ID: instances that may have ended without a report, usually none
    doubtful: dict[str, ContainerInstance] = {}

    def synchronized(self, alive: Iterable[ContainerInstance]) -> tuple[ContainerInstance, ...]:
        """Set all instances that the runtime runs or may run. Returns the instances that ended while it was disconnected."""
        before = tuple(self)
        self.by_pod, self.doubtful = {}, {}
        for found in alive:
            self.put(found)
        self.is_synchronized = True
        return tuple(gone for gone in before if self.find(gone.pod_uid, gone.id) is None)

    def lost(self) -> None:
        self.is_synchronized = False

    def put(self, alive: ContainerInstance) -> None:
        self.by_pod.setdefault(alive.pod_uid, {})[alive.id] = alive
        self.doubtful.pop(alive.id, None)
        if alive.is_doubtful:
            self.doubtful[alive.id] = alive

    def ended(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        """Its process is gone. pod_uid: "" if its sandbox has been removed. Returns the instance, or None if it was not alive."""
        if not pod_uid:
            pod_uid = next((alive.pod_uid for alive in self if alive.id == container_id), "")
        of_pod = self.by_pod.get(pod_uid, {})
        gone = of_pod.pop(container_id, None)
        if gone is None:
            return None
        self.doubtful.pop(container_id, None)
        if not of_pod:
            del self.by_pod[pod_uid]
        return gone

    def find(self, pod_uid: str, container_id: str) -> ContainerInstance | None:
        return self.by_pod.get(pod_uid, {}).get(container_id)

    def of_pod(self, pod_uid: str) -> tuple[ContainerInstance, ...]:
        return tuple(self.by_pod.get(pod_uid, {}).values())

    def instances(self, pod_uid: str, container: str) -> tuple[ContainerInstance, ...]:
        return tuple(a for a in self.of_pod(pod_uid) if a.container == container)

    def have_ended(self, pod_uid: str, containers: Collection[str]) -> bool:
        """Whether all of these are known to have ended."""
        return self.is_synchronized and not any(a.container in containers for a in self.of_pod(pod_uid))

    def unlisted(self) -> tuple[UnlistedContainer, ...]:
        """The instances that the runtime's list would not contain after a restart of the agent."""
        return tuple(
            UnlistedContainer(a.pod_uid, a.container, a.id, a.sandbox_id)
            for a in self.doubtful.values()
            if a.unlisted_since is not None
        )

    def restore(self, unlisted: Iterable[UnlistedContainer], now: float) -> None:
        for a in unlisted:
            self.put(ContainerInstance(a.id, a.sandbox_id, a.pod_uid, a.container, unlisted_since=now))

    def __iter__(self) -> Iterator[ContainerInstance]:
        for of_pod in self.by_pod.values():
            yield from of_pod.values()
