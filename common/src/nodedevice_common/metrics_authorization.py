"""Decides who may read /metrics: the API server accepts the bearer token, and its user may `get` /metrics.

Source: authentication.k8s.io/v1 TokenReview and authorization.k8s.io/v1 SubjectAccessReview; as for the metrics of Kubernetes' own
components, the right is an RBAC rule on nonResourceURLs.
"""

import asyncio
import hashlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError
from http import HTTPStatus
from typing import Any, Final

import msgspec

from nodedevice_common.decoding import convert
from nodedevice_common.pacing import TokenBucket

log = logging.getLogger(__name__)

VERDICT_SECONDS: Final = 60.0
_REVIEW_SECONDS: Final = 8.0
_MOST_VERDICTS: Final = 256
# unknown tokens cost the API server two requests each
_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE = 2.0, 10

# Creates an object of that API group and kind with that spec. Returns the status that the API server gives it. May raise anything.
Create = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any]]]


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: dict[str, Any] = {}


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


async def review(create: Create, token: str) -> HTTPStatus:
    """Return OK, UNAUTHORIZED for an unknown token, or FORBIDDEN. Raises Undecodable, and errors of `create`."""
    status = await create("authentication.k8s.io", "TokenReview", {"token": token})
    found = convert(status, _TokenStatus)
    if not found.authenticated:
        return HTTPStatus.UNAUTHORIZED
    # the user's name has another key in the second kind
    user = {"user" if key == "username" else key: value for key, value in found.user.items()}
    spec = {**user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    status = await create("authorization.k8s.io", "SubjectAccessReview", spec)
    return HTTPStatus.OK if convert(status, _AccessStatus).allowed else HTTPStatus.FORBIDDEN


class MetricsAccess:
    """Keeps verdicts on tokens for a minute. Threads of the HTTP server call it; requests are sent on the event loop."""

    def __init__(
        self, create: Create, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._create, self._loop, self._clock = create, loop, clock
        # by the token's hash: expiry and verdict; oldest first
        self._verdicts: dict[bytes, tuple[float, HTTPStatus]] = {}
        self._bucket = TokenBucket(_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE, clock())
        self._next_log = 0.0
        self._lock = threading.Lock()

    def check(self, authorization: str) -> HTTPStatus:
        """Return the verdict; TOO_MANY_REQUESTS for a flood of tokens, SERVICE_UNAVAILABLE without a response."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return HTTPStatus.UNAUTHORIZED
        key = hashlib.sha256(token.encode()).digest()
        with self._lock:
            until, verdict = self._verdicts.get(key, (0.0, HTTPStatus.UNAUTHORIZED))
            if self._clock() < until:
                return verdict
            # a flood of other tokens does not exclude an accepted one
            if verdict is not HTTPStatus.OK and not self._bucket.take(self._clock()):
                return HTTPStatus.TOO_MANY_REQUESTS
        return self._reviewed(key, token)

    def _reviewed(self, key: bytes, token: str) -> HTTPStatus:
        asking = asyncio.run_coroutine_threadsafe(review(self._create, token), self._loop)
        try:
            verdict = asking.result(_REVIEW_SECONDS)
        except (Exception, CancelledError) as exc:
            asking.cancel()
            self._log_failure(exc)
            return HTTPStatus.SERVICE_UNAVAILABLE
        with self._lock:
            self._verdicts.pop(key, None)
            self._verdicts[key] = (self._clock() + VERDICT_SECONDS, verdict)
            if len(self._verdicts) > _MOST_VERDICTS:
                self._forget_one()
        return verdict

    def _log_failure(self, error: BaseException) -> None:
        """Log at most once a minute."""
        with self._lock:
            is_due = self._clock() >= self._next_log
            if is_due:
                self._next_log = self._clock() + VERDICT_SECONDS
        if is_due:
            problem = str(error) or type(error).__name__
            log.warning("cannot review the token of a client of /metrics; refusing it", extra={"error": problem})

    def _forget_one(self) -> None:
        """Drop a refused token first, so that a flood of tokens pushes out no accepted one."""
        oldest = next(iter(self._verdicts))
        refused = (key for key, (_, verdict) in self._verdicts.items() if verdict is not HTTPStatus.OK)
        del self._verdicts[next(refused, oldest)]
