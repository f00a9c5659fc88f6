"""The condition Injectable: whether a container runtime is connected that injects devices.

Pods with devices wait while a restarting runtime is disconnected for a moment. So a disconnection only counts after a grace
period. The validator's state stays until the next container is created, so that a restart without changes writes nothing.
"""

from collections.abc import Sequence

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.runtime import ContainerInstance, Validator
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.runtime.given_files import GivenFile

_NAMED = 3

_FAILS_OPEN = "so containers that are created while this agent is down start without their devices"
_VALIDATORS = {
    Validator.NOT_SEEN: (
        Reason.RUNTIME_CONNECTED,
        "NRI's default_validator holds back pods with devices while this agent is down; whether it is on is unknown until a "
        "container is created",
    ),
    Validator.ON: (
        Reason.RUNTIME_CONNECTED,
        "NRI's default_validator, which holds back pods with devices while this agent is down, is on",
    ),
    Validator.OFF: (
        Reason.NO_VALIDATOR,
        f"NRI's default_validator is off, {_FAILS_OPEN}: enable it as docs/install.md shows",
    ),
    Validator.MISSING: (
        Reason.NO_VALIDATOR,
        f"it has no default_validator for NRI, {_FAILS_OPEN}: update it to containerd 2.2, CRI-O 1.34 or newer",
    ),
}


# status, reason and message of the condition
Injectable = tuple[str, str, str]


class ConnectionStatus:
    """grace_seconds: how long the runtime may be disconnected. Every event returns whether it changed the condition."""

    def __init__(self, now: float, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self.grace_ends_at: float | None = now + grace_seconds
        self._runtime = ""
        self._disconnect_reason = ""
        self._validator = Validator.NOT_SEEN
        # None while it is unknown
        self.condition: Injectable | None = None

    @property
    def is_connected(self) -> bool:
        return self.grace_ends_at is None and self._disconnect_reason == ""

    def connected(self, name: str, version: str, validator: Validator = Validator.NOT_SEEN) -> bool:
        """validator: NOT_SEEN or MISSING."""
        self.grace_ends_at = None
        self._disconnect_reason = ""
        self._runtime = f"{name} {version}".strip() or "a runtime that does not send its name"
        if Validator.MISSING in (validator, self._validator):
            self._validator = validator
        return self._update()

    def validator_seen(self, validator: Validator) -> bool:
        """ON or OFF."""
        if not self.is_connected:
            return False
        self._validator = validator
        return self._update()

    def disconnected(self, reason: str, now: float) -> bool:
        """reason: a sentence with the remedy."""
        was_connected = self.is_connected
        self._disconnect_reason = reason
        if was_connected:
            self.grace_ends_at = now + self._grace_seconds
        return self.grace_ends_at is None and self._update()

    def tick(self, now: float) -> bool:
        """Time has passed."""
        if self.grace_ends_at is None or self.grace_ends_at > now:
            return False
        self.grace_ends_at = None
        self._disconnect_reason = self._disconnect_reason or "the container runtime has not responded yet"
        return self._update()

    def _update(self) -> bool:
        reason, message = _VALIDATORS[self._validator]
        condition: Injectable = "True", reason, f"connected to {self._runtime}; {message}"
        if not self.is_connected and not self._runtime:
            condition = "False", Reason.NO_RUNTIME, self._disconnect_reason
        elif not self.is_connected:
            message = f"the connection to {self._runtime} is lost: {self._disconnect_reason}"
            condition = "False", Reason.RUNTIME_DISCONNECTED, message
        before, self.condition = self.condition, condition
        return before != condition


def injectable(
    condition: Injectable,
    now: Snapshot,
    using_released: Sequence[ContainerInstance] = (),
    renumbered: Sequence[GivenFile] = (),
    note: str = "",
) -> Injectable:
    """Return the condition of one resource, from the connection and the containers that run without their devices.

    using_released: containers that use released devices, see ContainerEvents. renumbered: device files whose number is outdated.
    note: added to the message if all is well.
    """
    status, reason, message = condition
    if status != "True":
        return condition
    if using_released:
        shown = _first([f"{found.container} of pod UID {found.pod_uid} ({found.id})" for found in using_released])
        message = f"containers still use devices that were released, and that another pod may have: {shown}"
        return "True", Reason.DEVICES_IN_USE_AFTER_RELEASE, message
    if renumbered:
        shown = _first(
            [f"{f.host_path} in {f.container.container} of pod UID {f.container.pod_uid}" for f in renumbered]
        )
        message = (
            f"device files of containers are not their devices' any more; the containers must be restarted: {shown}"
        )
        return "True", Reason.DEVICES_RENUMBERED, message
    pods = [h.pod for h in now.held if h.not_injected] + [p.pod for p in now.pending if p.not_injected]
    if not pods:
        return status, reason, f"{message}; {note}" if note else message
    shown = _first(sorted({f"{pod.namespace}/{pod.name}" for pod in pods if pod is not None}))
    message = f"{len(pods)} containers run without the devices that they requested, and must be restarted: {shown}"
    return "True", Reason.DEVICES_NOT_INJECTED, message


def _first(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
