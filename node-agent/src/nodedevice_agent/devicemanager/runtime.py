"""The interface between the agent and a container runtime: sandboxes and containers as values, and the runtime's calls.

A protocol client (nri) connects to the runtime and calls a RuntimeHandler, which decides. The handler does not depend on the
runtime's protocol.
Source: containerd/nri pkg/api/api.proto @ v0.12 (the fields of a pod sandbox and a container).
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


class RuntimeDevice(NamedTuple):
    """A device file inside a container, as the runtime reports it. type: c, b, u or p."""

    path: str
    type: str
    major: int
    minor: int


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A pod as the runtime knows it.

    uid: as the kubelet passed it to the runtime; for a static pod this is not the UID of its mirror pod in the API, but the
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
    """A container as the runtime knows it; in create_container, as it will be created.

    env: NAME=value, in the runtime's order. devices: as the runtime reports them, without those added by CDI devices.
    annotations: from the pod's author, and those added at creation. pid: 0 without a process.
    """

    id: str
    sandbox_id: str
    name: str
    state: ContainerState = ContainerState.UNKNOWN
    env: tuple[str, ...] = ()
    devices: tuple[RuntimeDevice, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    pid: int = 0


class Validator(Enum):
    """NRI's default_validator: it rejects containers whose annotations require a plugin that is not connected."""

    NOT_SEEN = "not known yet"
    ON = "on"
    OFF = "off"
    MISSING = "not in this release of the runtime"


class InjectionRefused(Exception):
    """This container must not be created. The message is for the pod's Event: it names the cause and the remedy."""


class RuntimeHandler(Protocol):
    """Receives the runtime's events, in order; called in the event loop, so no method may block.

    When create_container or validate raises or takes longer than a second, the runtime gets an error: the container does not
    start, and the kubelet retries.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        """Registered with the runtime, after its first list. validator: NOT_SEEN or MISSING, as far as known by then."""

    def validator_seen(self, validator: Validator) -> None:
        """ON or OFF: reported with each created container, usually unchanged."""

    def runtime_disconnected(self, reason: str) -> None:
        """Disconnected, or not connected yet. reason: a sentence with the remedy, the same as long as nothing changed."""

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        """All sandboxes and containers of the runtime, stopped ones included: what is missing is gone.

        Once for each connection, before `runtime_connected`.
        """

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        """The edits that give this container its devices; None when it requests none.

        May wait briefly for an allocation in progress; the runtime starts no other container meanwhile.
        Raises InjectionRefused.
        """

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The final check, after every plugin of the runtime has made its adjustments. Raises InjectionRefused."""

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """The container's process has started, and may have ended meanwhile. Never after its container_ended."""

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Its process is gone, or it never had one. May be called more than once, and for unknown containers.

        A runtime that has removed the sandbox by then passes it with empty fields; the container's fields are always set.
        """

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """The pod is gone from the runtime, with all its containers. May be called more than once, or not at all.

        containerd 2.4 does not report it for sandboxes that are older than its own last restart.
        """
