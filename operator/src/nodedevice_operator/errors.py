"""What can go wrong, as values with fields.

OperatorError
├── OperatorSettingsError      a flag, an environment variable or the configuration file is not usable
├── CredentialsError   no usable kubeconfig or service account
├── StaleWatch         a watch does not deliver what the API server has
├── TaskEnded          a bug: a background task that never ends has ended
├── Overdue            a command did not finish in time
├── OlderRelease       the installed CRDs are of a newer release than this program
├── StillLed           another operator leads and does not stop
└── ApiError           a request to the API server failed
    ├── Unreachable    no response: nothing listens, it is not trusted, or it is too slow
    ├── WatchInterrupted  a watch that was open was cut
    ├── Unavailable    not now (429, 5xx)
    │   └── OverBudget  429 of an eviction: a PodDisruptionBudget does not allow it now
    ├── Forbidden      401, 403
    │   ├── Unauthorized  401: the credentials are rejected, so nothing works
    │   └── Denied      403 of an admission policy: about this write, not about our rights
    ├── InvalidResponse  a response that no API server sends: something in between did
    ├── NotFound       404
    ├── Conflict       409, with the fields and their owners if server-side apply refused
    ├── Invalid        400, 413, 422: the same request will be refused again
    └── NotLeading     never sent: another operator may write now
"""

from dataclasses import dataclass
from typing import Final


class OperatorError(Exception):
    """Root of all errors that the operator raises on purpose."""


class OperatorSettingsError(OperatorError):
    """A setting that cannot be used. `setting` names it as the person wrote it; the text says what to do."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


class CredentialsError(OperatorError):
    """No credentials for the API server. The text says where they were expected."""


class StaleWatch(OperatorError):
    """What is stored of an object is older than what the API server shows, and has been for too long."""

    def __init__(self, kind: str, name: str, version: int, seconds: float) -> None:
        super().__init__(
            f"the watch is stale: it has not delivered {kind} {name} at resource version {version} for {seconds:.0f} s; "
            "exiting for a restart"
        )
        self.kind = kind
        self.name = name
        self.version = version


class TaskEnded(OperatorError):
    """A background task ended that never ends. Its work is not done any more, so the process exits too."""

    def __init__(self, task: str, problem: str) -> None:
        super().__init__(
            f"the task {task} has ended ({' '.join(problem.split())}), which is a bug: report it with the log; "
            "exiting for a restart"
        )
        self.task = task


class Overdue(OperatorError):
    """A command's time is over. `step` is what it was at, `trouble` what it was waiting for, if that is known."""

    def __init__(self, seconds: float, step: str, trouble: str) -> None:
        because = f": {trouble}" if trouble else ""
        super().__init__(f"not done after {seconds:g} s, while {step}{because}; it can be run again")
        self.step = step
        self.trouble = trouble


class OlderRelease(OperatorError):
    """Fields that newer objects use would be taken away."""

    def __init__(self, name: str, there: str, ours: str) -> None:
        super().__init__(
            f"{name} is of release {there}, newer than this program's {ours}: use a program and chart of {there} or newer; to go "
            "back all the same, and lose what only newer fields hold, give --allow-downgrade (crds.allowDowngrade of the chart)"
        )
        self.name = name
        self.there = there
        self.ours = ours


class StillLed(OperatorError):
    """Whoever holds the Lease would write again what is taken back."""

    def __init__(self, holder: str, seconds: float) -> None:
        super().__init__(
            f"the operator {holder} leads, and has not ended after {seconds:.0f} s: stop it, wherever it runs, and try again"
        )
        self.holder = holder


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another field manager owns: server-side apply gives it as a cause of its refusal."""

    manager: str
    field: str


class ApiError(OperatorError):
    """A request that failed. `what` is the kind, or kind/subresource, as RBAC spells it."""

    def __init__(self, verb: str, what: str, problem: str, status: int | None = None) -> None:
        super().__init__(f"{verb} {what}: {problem}")
        self.verb = verb
        self.what = what
        self.problem = problem
        self.status = status


class Unreachable(ApiError):
    """No response came. It is not known whether a write was done."""


class WatchInterrupted(ApiError):
    """A watch that was open was cut. Whether the API server is unreachable, the next attempt shows."""


class Unavailable(ApiError):
    """The API server asks to come back later; `retry_after_seconds` where it says when."""

    def __init__(
        self, verb: str, what: str, problem: str, status: int | None = None, retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(verb, what, problem, status)
        self.retry_after_seconds = retry_after_seconds


class OverBudget(Unavailable):
    """A PodDisruptionBudget does not allow an eviction now. The API server itself is available."""


class Forbidden(ApiError):
    """Access is denied: a role is missing, or the credentials are rejected."""


class Unauthorized(Forbidden):
    """The token or the certificate is rejected. Roles do not matter, and every other request fails like this."""


class Denied(Forbidden):
    """An admission policy refuses this write. Others of the kind may pass."""


class InvalidResponse(ApiError):
    """The response reports success, and has an unexpected form. It is not known whether a write was done."""


class NotFound(ApiError):
    """The object, or its kind, does not exist."""


class Conflict(ApiError):
    """The object is not as assumed. `causes` are the fields that others own, when server-side apply refused."""

    def __init__(
        self, verb: str, what: str, problem: str, status: int | None = None, causes: tuple[FieldConflict, ...] = ()
    ) -> None:
        super().__init__(verb, what, problem, status)
        self.causes = causes


class Invalid(ApiError):
    """The API server refuses the content, or the identity that was given with it."""


class NotLeading(ApiError):
    """A write that was not sent, because this operator does not lead now. The leader does the same work."""


# Answers that are about no single object; 401 is about our identity.
_STATUS_OF_ALL_REQUESTS: Final = frozenset({401, 429, 502, 503, 504})


def concerns_all_requests(error: ApiError) -> bool:
    """Whether other requests would fail in the same way, so that sending them only makes it worse."""
    return isinstance(error, Unreachable | NotLeading) or error.status in _STATUS_OF_ALL_REQUESTS
