"""Whether a container runtime takes devices from us, as the condition Injectable says it.

A runtime that restarts is away for a moment, and nothing is lost by it: pods that ask for devices are held until it is back. So
its absence counts only after a grace, and until then what was said before still holds. That holds for its validator too: after a
restart it is taken for what it was until the next container is created, so that a restart that changes nothing writes nothing.
"""

from collections.abc import Sequence

from nodedevice_api.names import Reason

from nodedevice_agent.devicemanager.running_containers import ContainerInstance
from nodedevice_agent.devicemanager.runtime import Validator
from nodedevice_agent.devicemanager.snapshot import Snapshot

_NAMED = 3

_FAILS_OPEN = "so containers that are created while this agent is away start without their devices"
_VALIDATORS = {
    Validator.NOT_SEEN: (
        Reason.RUNTIME_CONNECTED,
        "whether NRI's default_validator, which holds back pods with devices while this agent is away, is on will show when a "
        "container is created",
    ),
    Validator.ON: (
        Reason.RUNTIME_CONNECTED,
        "NRI's default_validator, which holds back pods with devices while this agent is away, is on",
    ),
    Validator.OFF: (
        Reason.NO_VALIDATOR,
        f"NRI's default_validator is off, {_FAILS_OPEN}: switch it on as docs/install.md shows",
    ),
    Validator.MISSING: (
        Reason.NO_VALIDATOR,
        f"it has no default_validator for NRI, {_FAILS_OPEN}: update it to containerd 2.2, CRI-O 1.34 or newer",
    ),
}


# status, reason and message of the condition
Injectable = tuple[str, str, str]


class RuntimeLink:
    """grace_seconds: how long the runtime may be away, at the start too, before that counts. now: monotonic seconds."""

    def __init__(self, now: float, grace_seconds: float) -> None:
        self._grace_seconds = grace_seconds
        self._grace_ends_at: float | None = now + grace_seconds
        self._runtime = ""
        self._why_away = ""
        self._validator = Validator.NOT_SEEN
        self._said: Injectable | None = None

    @property
    def said(self) -> Injectable | None:
        """What holds now; None while it is not known yet."""
        return self._said

    @property
    def is_connected(self) -> bool:
        return self._grace_ends_at is None and self._why_away == ""

    def connected(self, name: str, version: str, validator: Validator = Validator.NOT_SEEN) -> bool:
        """validator: NOT_SEEN or MISSING. Returns whether what is said changes by it."""
        self._grace_ends_at = None
        self._why_away = ""
        self._runtime = f"{name} {version}".strip() or "a runtime that does not say its name"
        if Validator.MISSING in (validator, self._validator):
            self._validator = validator
        return self._say(self._here())

    def validator_seen(self, validator: Validator) -> bool:
        """ON or OFF. Returns whether what is said changes by it."""
        if not self.is_connected:
            return False
        self._validator = validator
        return self._say(self._here())

    def disconnected(self, why: str, now: float) -> bool:
        """why: a sentence with the remedy. Returns whether what is said changes by it."""
        was_connected = self.is_connected
        self._why_away = why
        if was_connected:
            self._grace_ends_at = now + self._grace_seconds
        return self._say(self._away()) if self._grace_ends_at is None else False

    def next_deadline(self) -> float | None:
        return self._grace_ends_at

    def tick(self, now: float) -> bool:
        """Time has passed. Returns whether what is said changes by it."""
        if self._grace_ends_at is None or self._grace_ends_at > now:
            return False
        self._grace_ends_at = None
        self._why_away = self._why_away or "the container runtime has not answered yet"
        return self._say(self._away())

    def _here(self) -> Injectable:
        reason, message = _VALIDATORS[self._validator]
        return "True", reason, f"connected to {self._runtime}; {message}"

    def _away(self) -> Injectable:
        if self._runtime:
            return "False", Reason.RUNTIME_DISCONNECTED, f"the connection to {self._runtime} is lost: {self._why_away}"
        return "False", Reason.NO_RUNTIME, self._why_away

    def _say(self, said: Injectable) -> bool:
        changes = said != self._said
        self._said = said
        return changes


def with_runners(said: Injectable, now: Snapshot, runs_on: Sequence[ContainerInstance] = ()) -> Injectable:
    """What holds for all resources, and for one of them also who runs without it. runs_on: as in RuntimeEvents."""
    if said[0] == "True" and runs_on:
        shown = ", ".join(f"{alive.container} of pod UID {alive.pod_uid} ({alive.id})" for alive in runs_on[:_NAMED])
        more = ", …" if len(runs_on) > _NAMED else ""
        message = f"containers run with devices that count as given back, and that another pod may have: {shown}{more}"
        return "True", Reason.DEVICES_IN_USE_AFTER_RELEASE, message
    pods = [h.pod for h in now.held if h.not_injected] + [w.pod for w in now.pending if w.not_injected]
    if said[0] != "True" or not pods:
        return said
    named = sorted({f"{pod.namespace}/{pod.name}" for pod in pods if pod is not None})
    shown = ", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else "")
    message = f"{len(pods)} containers run without the devices they asked for, and have to be started anew: {shown}"
    return "True", Reason.DEVICES_NOT_INJECTED, message
