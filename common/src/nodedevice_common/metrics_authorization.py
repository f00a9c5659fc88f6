"""Decides who may read /metrics if authentication is on: the API server accepts the bearer token, and its user may `get` /metrics.

Source: authentication.k8s.io/v1 TokenReview and authorization.k8s.io/v1 SubjectAccessReview; the permission is an RBAC rule on
nonResourceURLs, as for the metrics of Kubernetes' own components.
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

# Creates an object of that API group and kind with that spec; the status that the API server gives it. May raise anything.
Create = Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any]]]


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: dict[str, Any] = {}


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


async def review(create: Create, token: str) -> HTTPStatus:
    """OK, UNAUTHORIZED for an unknown token, FORBIDDEN without the permission.

    Raises Undecodable, and what `create` raises.
    """
    status = await create("authentication.k8s.io", "TokenReview", {"token": token})
    found = convert(status, _TokenStatus)
    if not found.authenticated:
        return HTTPStatus.UNAUTHORIZED
    # what one calls a username the other calls a user
    user = {"user" if key == "username" else key: value for key, value in found.user.items()}
    spec = {**user, "nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    status = await create("authorization.k8s.io", "SubjectAccessReview", spec)
    return HTTPStatus.OK if convert(status, _AccessStatus).allowed else HTTPStatus.FORBIDDEN


class MetricsAccess:
    """Verdicts on tokens, each kept for a minute. Called by threads of the HTTP server; requests are sent on the event loop."""

    def __init__(
        self, create: Create, loop: asyncio.AbstractEventLoop, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._create, self._loop, self._clock = create, loop, clock
        # by the token's hash: until when, and what; oldest first
        self._verdicts: dict[bytes, tuple[float, HTTPStatus]] = {}
        self._bucket = TokenBucket(_REVIEWS_PER_SECOND, _REVIEWS_AT_ONCE, clock())
        self._next_log = 0.0
        self._lock = threading.Lock()

    def check(self, authorization: str) -> HTTPStatus:
        """The status for that header: from `review`, TOO_MANY_REQUESTS for a flood, SERVICE_UNAVAILABLE without a response."""
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            return HTTPStatus.UNAUTHORIZED
        key = hashlib.sha256(token.encode()).digest()
        with self._lock:
            until, verdict = self._verdicts.get(key, (0.0, HTTPStatus.UNAUTHORIZED))
            if self._clock() < until:
                return verdict
            # who was let in before is not kept out by a flood of others
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
        """At most once a minute."""
        with self._lock:
            is_due = self._clock() >= self._next_log
            if is_due:
                self._next_log = self._clock() + VERDICT_SECONDS
        if is_due:
            problem = str(error) or type(error).__name__
            log.warning("cannot review the token of a client of /metrics; refusing it", extra={"error": problem})

    def _forget_one(self) -> None:
        """Drop a refused token first: a flood of tokens does not push out accepted ones."""
        oldest = next(iter(self._verdicts))
        refused = (key for key, (_, verdict) in self._verdicts.items() if verdict is not HTTPStatus.OK)
        del self._verdicts[next(refused, oldest)]
