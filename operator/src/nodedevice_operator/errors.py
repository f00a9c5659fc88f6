"""What can go wrong, as values with fields; what each stands for is in its class.

OperatorError
├── OperatorSettingsError, CredentialsError       nothing can be started
├── StaleWatch, TaskEnded                         the process exits, to be started again
├── Overdue, OlderRelease, StillLed               a command ends
└── ApiError                                      a request failed
    ├── Unreachable
    │   └── NoAnswer
    ├── WatchInterrupted, InvalidResponse, TooBig, NotFound, Conflict, Invalid, NotLeading
    ├── Unavailable
    │   └── OverBudget
    └── Forbidden
        ├── Unauthorized
        └── Denied
"""

from dataclasses import dataclass
from typing import Final

from nodedevice_kube.masking import masked


class OperatorError(Exception):
    """Root of all errors that the operator raises on purpose. No text has a secret, whoever worded a part of it."""

    def __init__(self, text: str = "") -> None:
        super().__init__(masked(text))


class OperatorSettingsError(OperatorError):
    """A flag, an environment variable or a key of the file that cannot be used, as it was written; the text has the remedy."""

    def __init__(self, setting: str, problem: str) -> None:
        super().__init__(f"{setting}: {problem}")


class CredentialsError(OperatorError):
    """No usable kubeconfig or service account. The text names where they were expected."""


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


class Overdue(OperatorError):
    """A command's time is over. `step` is what it was at, `trouble` what it was waiting for, if that is known."""

    def __init__(self, seconds: float, step: str, trouble: str) -> None:
        because = f": {trouble}" if trouble else ""
        super().__init__(f"not done after {seconds:g} s, while {step}{because}; it can be run again")
        self.trouble = trouble


class OlderRelease(OperatorError):
    """The installed CRDs are of a newer release than this program: fields that newer objects use would be lost."""

    def __init__(self, name: str, there: str, ours: str) -> None:
        super().__init__(
            f"{name} is of release {there}, newer than this program's {ours}: use a program and chart of {there} or newer; to go "
            "back all the same, and lose what only newer fields hold, give --allow-downgrade (crds.allowDowngrade of the chart)"
        )


class StillLed(OperatorError):
    """Another operator leads and does not stop: it would write again what is removed."""

    def __init__(self, holder: str, seconds: float) -> None:
        super().__init__(
            f"the operator {holder} leads, and has not ended after {seconds:.0f} s: stop it, wherever it runs, and try again"
        )


@dataclass(frozen=True, slots=True)
class FieldConflict:
    """A field that another field manager owns: server-side apply gives it as a cause of its refusal."""

    manager: str
    field: str


class ApiError(OperatorError):
    """A request that failed. `what` is the kind, or kind/subresource, as RBAC spells it.

    retry_after_seconds: of Unavailable, how long the API server asks to wait; 0.0 where it does not.
    causes: of Conflict, the fields that others own, when server-side apply refused.
    """

    def __init__(
        self,
        verb: str,
        what: str,
        problem: str,
        status: int | None = None,
        retry_after_seconds: float | None = None,
        causes: tuple[FieldConflict, ...] = (),
    ) -> None:
        super().__init__(f"{verb} {what}: {problem}")
        self.verb = verb
        self.what = what
        self.problem = masked(problem)
        self.status = status
        self.retry_after_seconds = retry_after_seconds or 0.0
        self.causes = causes


class TooBig(ApiError):
    """The response is longer than was asked for, and not read to its end."""


class Unreachable(ApiError):
    """No response: nothing listens, it is not trusted, or it is too slow. It is not known whether a write was done."""


class NoAnswer(Unreachable):
    """No response within the `seconds` that it was waited for. Others may have been answered meanwhile."""

    def __init__(self, verb: str, what: str, problem: str, seconds: float) -> None:
        super().__init__(verb, what, problem)
        self.seconds = seconds


class WatchInterrupted(ApiError):
    """A watch that was open was cut. Whether the API server is unreachable, the next attempt shows."""


class Unavailable(ApiError):
    """429, 5xx: the API server asks to come back later."""


class OverBudget(Unavailable):
    """429 of an eviction: a PodDisruptionBudget does not allow it now. The API server itself is available."""


class Forbidden(ApiError):
    """401, 403: a role is missing, or the credentials are rejected."""


class Unauthorized(Forbidden):
    """401: the token or the certificate is rejected. Roles do not matter, and every other request fails like this."""


class Denied(Forbidden):
    """403 of an admission policy or webhook, about this write and not about our rights. Others of the kind may pass."""


class InvalidResponse(ApiError):
    """The response reports success in a form that no API server sends. It is not known whether a write was done."""


class NotFound(ApiError):
    """404: the object, or its kind, does not exist."""


class Conflict(ApiError):
    """409: the object is not as assumed."""


class Invalid(ApiError):
    """400, 413, 422: the content, or the identity given with it, is refused; the same request will be refused again."""


class NotLeading(ApiError):
    """A write that was not sent, because this operator does not lead now. The leader does the same work."""


# Answers that are about no single object; 401 is about our identity.
_STATUS_OF_ALL_REQUESTS: Final = frozenset({401, 429, 502, 503, 504})


def concerns_all_requests(error: ApiError) -> bool:
    """Whether other requests would fail in the same way, so that sending them only makes it worse."""
    return isinstance(error, Unreachable | NotLeading) or error.status in _STATUS_OF_ALL_REQUESTS
