"""How the operator stands with the API server and with itself: told once in the log, and always at /healthz and /readyz.

Every request, of our own client and of the watch, reports here. A line is logged when things change, not for each failure.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Final

from nodedevice_common.probes import Heartbeat

from nodedevice_operator.errors import ApiError, Denied, Forbidden, OverBudget, Unauthorized, Unreachable

log = logging.getLogger(__name__)

# It is there, or something before it is, but it does not serve; a 500 is about one request.
_AWAY: Final = frozenset({502, 503, 504})
_BUSY: Final = 429
# An API server under load refuses some requests of a kind and takes others: that is told now and then.
_BUSY_TOLD_SECONDS: Final = 60.0
# What is refused is asked for again within half a minute, where anybody still wants it: a refusal older than this is no problem
# of now, though nothing has shown yet that it would be allowed.
_REFUSAL_SECONDS: Final = 90.0

_Asked = tuple[str, str]


class ApiHealth:
    """Whether the API server answers, and lets us. Thread-safe enough: single assignments only."""

    def __init__(self, server: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.server = server
        self._clock = clock
        self._outage: str | None = None
        self._outage_seen_at = -math.inf
        # when it was said last that it does not know us; None once it does again
        self._unknown_at: float | None = None
        # by verb and kind, when it was refused last
        self._forbidden: Mapping[_Asked, float] = {}
        self._busy: Mapping[_Asked, float] = {}
        self._busy_told: dict[_Asked, float] = {}
        self._back: Callable[[], None] = lambda: None

    def when_back(self, call: Callable[[], None]) -> None:
        """Have `call` called each time that an outage ends."""
        self._back = call

    def succeeded(self, verb: str, what: str) -> None:
        """Report an answer. Clears an outage, that we are not known, and a refusal of just that."""
        self._answered()
        if self._unknown_at is not None:
            log.info("API server accepts the credentials again", extra={"server": self.server})
            self._unknown_at = None
        self._busy = _without(self._busy, (verb, what))
        if (verb, what) in self._forbidden:
            log.info("API server allows it now", extra={"verb": verb, "what": what})
            self._forbidden = _without(self._forbidden, (verb, what))

    def failed(self, error: ApiError) -> None:
        """Report a failure. An answer that is about the object itself is an answer too."""
        if isinstance(error, Unreachable) or error.status in _AWAY:
            if self._outage is None:
                log.error(
                    "API server does not answer; trying again until it does",
                    extra={"server": self.server, "problem": error.problem},
                )
            self._outage = error.problem
            self._outage_seen_at = self._clock()
            return
        self._answered()
        if error.status == _BUSY and not isinstance(error, OverBudget):
            self._tell_busy(error)
        if isinstance(error, Unauthorized):
            self._tell_unknown(error)
        # one that a policy refuses is about that object: whoever wanted to write it tells it
        elif isinstance(error, Forbidden) and not isinstance(error, Denied):
            self._tell_forbidden(error)

    def _tell_unknown(self, error: ApiError) -> None:
        """Once, whatever was asked for: everything is refused like that, and the roles are not looked at."""
        if self._unknown_at is None:
            log.error(
                "API server does not accept the credentials; renew the token or the client certificate",
                extra={"server": self.server, "problem": error.problem},
            )
        self._unknown_at = self._clock()

    def _tell_forbidden(self, error: ApiError) -> None:
        asked = (error.verb, error.what)
        if asked not in self._forbidden:
            log.error(
                "API server forbids it; grant what the chart's role nodedevice-operator has",
                extra={"verb": error.verb, "what": error.what, "problem": error.problem},
            )
        self._forbidden = {**self._forbidden, asked: self._clock()}

    def _tell_busy(self, error: ApiError) -> None:
        asked = (error.verb, error.what)
        now = self._clock()
        self._outage_seen_at = now
        self._busy = {**self._busy, asked: now}
        if now - self._busy_told.get(asked, -math.inf) >= _BUSY_TOLD_SECONDS:
            self._busy_told[asked] = now
            fields = {"verb": error.verb, "what": error.what, "problem": error.problem}
            log.warning("API server is too busy; coming back when it asks to", extra=fields)

    def seconds_since_outage(self) -> float:
        """How long every request has had an answer."""
        return self._clock() - self._outage_seen_at

    def _answered(self) -> None:
        if self._outage is not None:
            log.info("API server answers again", extra={"server": self.server})
            self._outage = None
            self._back()

    def problems(self) -> tuple[str, ...]:
        """What is wrong now, one sentence each."""
        found = [f"API server {self.server} does not answer: {self._outage}"] if self._outage is not None else []
        if self._unknown_at is not None and self._clock() - self._unknown_at <= _REFUSAL_SECONDS:
            found.append(f"API server {self.server} does not accept the credentials")
        found += [f"API server is too busy for {verb} {what}" for verb, what in self._lately(self._busy)]
        found += [f"API server forbids {verb} {what}" for verb, what in self._lately(self._forbidden)]
        return tuple(found)

    def _lately(self, refused: Mapping[_Asked, float]) -> list[_Asked]:
        """What of it was refused so lately that it holds now."""
        earliest = self._clock() - _REFUSAL_SECONDS
        return sorted(asked for asked, at in refused.items() if at >= earliest)


def _without(refused: Mapping[_Asked, float], asked: _Asked) -> Mapping[_Asked, float]:
    """A new mapping: the one that is there may be read by another thread at this moment."""
    return {one: at for one, at in refused.items() if one != asked} if asked in refused else refused


class Health:
    """The two questions a kubelet asks: does it hang, and has it seen all it must see."""

    def __init__(self, api: ApiHealth, waits_for: Callable[[], tuple[str, ...]]) -> None:
        self._api = api
        self._waits_for = waits_for
        self._heartbeat = Heartbeat()

    def turned(self) -> None:
        """Report that the event loop turns."""
        self._heartbeat.beat()

    def live(self) -> tuple[bool, tuple[str, ...]]:
        """Whether to go on living, and what is wrong. A restart does not bring an API server back, so that is no reason."""
        hang = self._heartbeat.problem()
        return (False, (hang,)) if hang else (True, self._api.problems())

    def ready(self) -> tuple[bool, tuple[str, ...]]:
        """Whether every list was seen and the API server answers, and what is missing."""
        missing = (*self._api.problems(), *self._waits_for())
        return not missing, missing
