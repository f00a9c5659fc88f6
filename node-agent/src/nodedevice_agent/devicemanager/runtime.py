"""What the agent and a container runtime have to say to each other: the runtime's sandboxes and containers as values, and the
calls that a connection to a runtime makes.

The seam between the two: an edge speaks with the runtime and calls a RuntimeHandler, which decides. It never knows by what
protocol the runtime speaks.
Source: containerd/nri pkg/api/api.proto @ v0.12 (what a runtime tells about a pod sandbox and a container).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol

from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits


class ContainerState(Enum):
    UNKNOWN = "Unknown"
    CREATED = "Created"
    PAUSED = "Paused"
    RUNNING = "Running"
    STOPPED = "Stopped"


class DeviceNode(NamedTuple):
    """A device file inside a container, as the runtime has it. type: c, b, u or p."""

    path: str
    type: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod as the runtime knows it.

    uid: as the kubelet gave it to the runtime; for a static pod that is not the uid of its mirror pod in the API, but the
    mirror pod's annotation kubernetes.io/config.hash.
    """

    id: str
    name: str
    namespace: str
    uid: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container as the runtime knows it; in create_container, as it is going to be.

    env: NAME=value, in the runtime's order. devices: what the runtime says it has, which leaves out what a CDI device brings.
    annotations: those of the pod's author and those that were added when it was created. pid: 0 where there is no process.
    """

    id: str
    sandbox_id: str
    name: str
    state: ContainerState = ContainerState.UNKNOWN
    env: tuple[str, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0


class Validator(Enum):
    """NRI's default_validator: it holds back containers whose annotations require a plugin that is away."""

    NOT_SEEN = "not known yet"
    ON = "on"
    OFF = "off"
    MISSING = "not in this release of the runtime"


class InjectionRefused(Exception):
    """This container must not start as it is. The message is for the pod's Event: it names the thing and the remedy."""


class RuntimeHandler(Protocol):
    """Told of everything that the runtime does, in its order; called in the event loop, so nothing here may block.

    What is asked (create_container, validate) is answered with an error to the runtime when it raises or takes longer than a
    second: the container does not start and the kubelet tries again.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        """The runtime has taken us in and told what it has. validator: NOT_SEEN or MISSING, all that is known by then."""

    def validator_seen(self, validator: Validator) -> None:
        """ON or OFF: told with each container that is created, mostly the same again."""

    def runtime_disconnected(self, reason: str) -> None:
        """No runtime from now on, or none yet. reason: a sentence with the remedy, the same as long as nothing changed."""

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        """All that the runtime has, stopped containers too: what is not here is gone.

        Once for each connection, before `runtime_connected`.
        """

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        """What this container needs to reach its devices; None when nothing was asked for.

        May wait a little for an allocation in flight; the runtime starts no other container meanwhile.
        Raises InjectionRefused.
        """

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The last look, after every plugin of the runtime has had its say. Raises InjectionRefused."""

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The container's process runs, or ran a moment ago. Never after its container_ended."""

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Its process is gone, or it never had one. May come more than once, and for containers never heard of before.

        A runtime that has forgotten the sandbox by then gives it empty fields; the container's always hold.
        """

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """The pod is gone from the runtime, with all its containers. May come more than once, or not at all.

        containerd 2.4 does not tell it of sandboxes that are older than its own last restart.
        """
