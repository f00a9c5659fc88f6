"""What can go wrong, as values with fields.

OperatorError
├── SettingsError      a flag, an environment variable or the configuration file is not usable
├── CredentialsError   no kubeconfig or service account to speak with
├── Behind             the watch does not bring what the API server has
├── TaskEnded          a bug: something that goes on for ever did not
├── Overdue            a command did not come to its end in time
├── OlderRelease       what is there is of a newer release than this program
├── StillLed           another operator leads and does not end
└── ApiError           the API server did not do what it was asked
    ├── Unreachable    no answer: nobody there, not trusted, or too slow
    ├── WatchInterrupted  a watch that was open was cut
    ├── Unavailable    an answer, but not now (429, 5xx)
    │   └── OverBudget  429 of an eviction: a PodDisruptionBudget does not allow it now
    ├── Forbidden      401, 403
    │   ├── Unauthorized  401: who we are is not known, so nothing works
    │   └── Denied      403 of an admission policy: this very write, not who we are
    ├── NotUnderstood  an answer that no API server gives: something between us and it made it
    ├── NotFound       404
    ├── Conflict       409, with the fields and their owners where server-side apply refused
    ├── Invalid        400, 413, 422: the same request will be refused again
    └── NotLeading     never sent: another operator may write now
"""

from dataclasses import dataclass
from typing import Final


class OperatorError(Exception):
    """Root of all errors that the operator raises on purpose."""


class SettingsError(OperatorError):
    """A setting that cannot be used. `setting` names it as the person wrote it; the text says what to do."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")
        self.setting = setting
        self.problem = problem


class CredentialsError(OperatorError):
    """Nothing to log in to the API server with. The text says where it was looked for."""


class Behind(OperatorError):
    """What the handlers know of an object is older than what the API server shows, and has been for too long."""

    def __init__(self, kind: str, name: str, version: int, seconds: float) -> None:
        super().__init__(
            f"the watch is behind: it has not brought {kind} {name} at resource version {version} for {seconds:.0f} s; "
            "ending, so as to start anew"
        )
        self.kind = kind
        self.name = name
        self.version = version


class TaskEnded(OperatorError):
    """A task ended that never ends. What it did is not done any more, so the process ends too."""

    def __init__(self, task: str, problem: str) -> None:
        super().__init__(
            f"the task {task} has ended ({' '.join(problem.split())}), which is a bug: report it with the log; "
            "ending, so as to start anew"
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
    """A field that somebody else owns: what server-side apply gives as a cause of its refusal."""

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
    """No answer came. It is not known whether a write was done."""


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
    """A PodDisruptionBudget does not allow an eviction now. The API server itself is well."""


class Forbidden(ApiError):
    """Who we are may not do this: a role is missing, or the token is not accepted."""


class Unauthorized(Forbidden):
    """The token or the certificate is not accepted. It is no matter of roles, and each other request fares the same."""


class Denied(Forbidden):
    """An admission policy refuses this very write. Others of the kind may pass."""


class NotUnderstood(ApiError):
    """The answer says it worked, and is not what was asked for. It is not known whether a write was done."""


class NotFound(ApiError):
    """The object, or its kind, is not there."""


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
    """A write that was not sent, because this operator does not lead now. Whoever leads does the same work."""


# Answers that are about no single object; 401 is about our identity.
_STATUS_OF_ALL_REQUESTS: Final = frozenset({401, 429, 502, 503, 504})


def concerns_all_requests(error: ApiError) -> bool:
    """Whether other requests would fail in the same way, so that sending them only makes it worse."""
    return isinstance(error, Unreachable | NotLeading) or error.status in _STATUS_OF_ALL_REQUESTS
