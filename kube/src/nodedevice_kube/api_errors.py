"""What a request to the API server can end with: one hierarchy, by HTTP status. Pure.

ApiError
├── Unreachable                       no response
│   └── NoAnswer                      none within the time
├── WatchInterrupted                  an open watch was cut
│   └── Silent                        an open watch brought nothing for too long
├── InvalidResponse, TooBig           a response that cannot be used
├── Unavailable                       429, 5xx
│   └── OverBudget                    429 of an eviction
├── Forbidden                         403
│   ├── Unauthorized                  401
│   └── Denied                        403 of an admission policy or webhook
├── NotFound, Gone, Conflict          404, 410, 409
├── Invalid                           any other 4xx, and a 500 that rejects the object
└── NotLeading                        not sent

Source: the statuses and reasons of k8s.io/apimachinery pkg/api/errors @ 1.37.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from nodedevice_kube.decoding import Undecodable, decode_json
from nodedevice_kube.fields import list_of, map_of
from nodedevice_kube.masking import masked

# A longer delay is cut: until then the program would work with old state.
LONGEST_RETRY_AFTER_SECONDS: Final = 60.0

_MANAGER: Final = re.compile(r'conflict with "((?:[^"\\]|\\.)*)"')
# of a cause of a Status
_FIELD_CONFLICT: Final = "FieldManagerConflict"
_TERMINATING: Final = "NamespaceTerminating"
_BUDGET: Final = "DisruptionBudget"
_WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
# An apply with an unknown field, or with too large an object, gets a 500.
_PERMANENT: Final = (
    "failed to create typed patch object",
    "request is too large",
    "trying to send message larger than max",
)
# responses that concern no single object; 401 concerns the identity
_STATUS_OF_ALL_REQUESTS: Final = frozenset({401, 429, 502, 503, 504})


class FieldConflict(NamedTuple):
    """A field that another field manager owns: a cause of a refused server-side apply."""

    manager: str
    field: str


class ApiError(Exception):
    """A failed request. The text is "<verb> <what>: <problem>", without secrets.

    verb, what: for messages and metrics, such as GET and nodes. status: of HTTP; 0 without a response. retry_after_seconds: as the
    API server asks, or 0.0. causes: of Conflict, the fields that other managers own. remedy: for a person, or "".
    """

    # whether the same request may succeed later by itself
    is_temporary = False

    def __init__(
        self,
        verb: str,
        what: str,
        problem: str,
        status: int = 0,
        *,
        retry_after_seconds: float = 0.0,
        causes: tuple[FieldConflict, ...] = (),
        remedy: str = "",
    ) -> None:
        self.problem = masked(problem)
        super().__init__(f"{verb} {what}: {self.problem}")
        self.verb = verb
        self.what = what
        self.status = status
        self.retry_after_seconds = retry_after_seconds
        self.causes = causes
        self.remedy = remedy

    @property
    def concerns_all_requests(self) -> bool:
        """Whether other requests would fail in the same way, so that sending them only makes it worse."""
        return self.status in _STATUS_OF_ALL_REQUESTS


class Unreachable(ApiError):
    """No response: nothing listens, it is not trusted, or it is too slow. A write may have been done."""

    concerns_all_requests = True
    is_temporary = True


class NoAnswer(Unreachable):
    """No response within `seconds`. Other requests may have had theirs."""

    def __init__(self, verb: str, what: str, problem: str, seconds: float) -> None:
        super().__init__(verb, what, problem)
        self.seconds = seconds


class WatchInterrupted(ApiError):
    """An open watch was cut. The next attempt shows whether the API server is reachable."""

    is_temporary = True


class Silent(WatchInterrupted):
    """An open watch brought nothing for too long, not even a bookmark, as behind a proxy that hangs."""


class InvalidResponse(ApiError):
    """A successful response in a form that no API server sends. A write may have been done."""

    is_temporary = True


class TooBig(ApiError):
    """The response is longer than requested, and was not read to its end."""


class Unavailable(ApiError):
    """429, 5xx: the API server asks to retry later."""

    is_temporary = True


class OverBudget(Unavailable):
    """429 of an eviction: a PodDisruptionBudget forbids it now. The API server itself is available."""

    concerns_all_requests = False


class Forbidden(ApiError):
    """403: a role is missing."""


class Unauthorized(Forbidden):
    """401: the token or the certificate is rejected, for every request, whether or not roles allow it."""


class Denied(Forbidden):
    """403 of an admission policy or webhook, about this write alone."""


class NotFound(ApiError):
    """404: the object, or its kind, does not exist."""


class Gone(ApiError):
    """410: the resource version is too old. A list has to come before the next watch."""


class Conflict(ApiError):
    """409: the object is not as assumed."""


class Invalid(ApiError):
    """The content, or its identity, is refused. The same request will be refused again."""


class NotLeading(ApiError):
    """A write that was not sent, because this operator does not lead."""

    concerns_all_requests = True


def refusal(
    verb: str, what: str, code: int, body: bytes | str, retry_after: str | None = None, *, method: str = ""
) -> ApiError:
    """Return the error of a response other than 2xx. Uses only a body of kind Status.

    method: the HTTP method if `verb` is another word.
    """
    return refusal_of(verb, what, code, _object(body), retry_after, method=method)


def refusal_of(
    verb: str, what: str, code: int, status: Mapping[str, Any], retry_after: str | None = None, *, method: str = ""
) -> ApiError:
    """Do the same for a decoded Status, such as that of an ERROR event."""
    details = map_of(status, "details")
    causes = [cause for cause in list_of(details, "causes") if isinstance(cause, dict)]
    reasons = {cause.get("reason") for cause in causes}
    message = status.get("message") or status.get("reason")
    problem = message if isinstance(message, str) else f"HTTP {code}"
    kind = _kind(code, problem, reasons)
    # A missing role has no causes, and names the kind. A policy gives its message as a cause; a webhook has neither.
    is_of_webhook = (method or verb) in _WRITES and status.get("message") and not details.get("kind")
    if kind is Forbidden and (causes or is_of_webhook):
        kind = Denied
    later = retry_after_seconds(retry_after, details.get("retryAfterSeconds"))
    conflicts = _field_conflicts(causes) if kind is Conflict else ()
    return kind(verb, what, problem, code, retry_after_seconds=later, causes=conflicts)


def _kind(code: int, problem: str, reasons: set[Any]) -> type[ApiError]:
    if code == 429:
        return OverBudget if _BUDGET in reasons else Unavailable
    if code >= 500:
        return Invalid if any(text in problem for text in _PERMANENT) else Unavailable
    if _TERMINATING in reasons:
        # Nothing can be created in a namespace that is being deleted.
        return NotFound
    return {401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 410: Gone}.get(code, Invalid)


def retry_after_seconds(header: str | None, stated: Any = None) -> float:
    """Return the delay in the Status, else in the header, which servers set alone when they shed load; 0.0 without both."""
    if not isinstance(stated, int | float):
        is_number = header is not None and header.isascii() and header.isdigit()
        stated = float(header[:9]) if is_number and header is not None else 0.0
    return float(min(max(stated, 0.0), LONGEST_RETRY_AFTER_SECONDS))


def _field_conflicts(causes: Sequence[Mapping[str, Any]]) -> tuple[FieldConflict, ...]:
    found: list[FieldConflict] = []
    for cause in causes:
        if cause.get("reason") == _FIELD_CONFLICT:
            manager = _MANAGER.match(str(cause.get("message", "")))
            found.append(FieldConflict(manager[1] if manager else "", str(cause.get("field", ""))))
    return tuple(found)


def _object(body: bytes | str) -> Mapping[str, Any]:
    try:
        return map_of(decode_json(body))
    except Undecodable:
        return {}
