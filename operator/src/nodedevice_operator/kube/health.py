"""Health of the API server and of the process: changes are logged, once; the state is at /healthz and /readyz."""

import logging
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from nodedevice_common import tasks, unauthorized
from nodedevice_common.http_server import OPEN, Heartbeat, Protection, serve
from nodedevice_kube.api_errors import ApiError, Denied, Forbidden, NoAnswer, OverBudget, Unauthorized, Unreachable
from prometheus_client import CollectorRegistry

from nodedevice_operator.errors import OperatorSettingsError

log = logging.getLogger(__name__)

# Something is listening, but it does not serve; a 500 is about one request.
_UNSERVED: Final = frozenset({502, 503, 504})
_BUSY: Final = 429
# An API server under load refuses some requests of a kind and accepts others: that is logged at most this often.
_BUSY_LOG_SECONDS: Final = 60.0
# A refused request is retried within half a minute if it is still needed: an older refusal is not a current problem, although
# nothing has shown yet that the request would be allowed.
_REFUSAL_SECONDS: Final = 90.0

_Request = tuple[str, str]
# the subject of a slow response, whatever was asked
_SLOW: Final = ("", "")
# Requests for display only: the program is ready without them.
SLICES: Final = "resourceslices"
_ONLY_SHOWN: Final = frozenset({SLICES})


@dataclass(eq=False)
class ApiHealth:
    """Thread-safe: single assignments only. on_recovery: called by any thread. role: of the chart, with the needed rights."""

    server: str
    clock: Callable[[], float] = time.monotonic
    on_recovery: Callable[[], object] = lambda: None
    role: str = "nodedevice-operator"
    _outage: str | None = field(default=None, init=False)
    _outage_seen_at: float = field(default=-math.inf, init=False)
    _answered_at: float = field(default=-math.inf, init=False)
    # when it last rejected the credentials; None once it accepts them again
    _rejected_at: float | None = field(default=None, init=False)
    # by verb and kind, when it was last refused
    _forbidden: Mapping[_Request, float] = field(default_factory=dict, init=False)
    _busy: Mapping[_Request, float] = field(default_factory=dict, init=False)
    _logged: dict[_Request, float] = field(default_factory=dict, init=False)

    def succeeded(self, verb: str, what: str) -> None:
        """Report a success. Ends an outage, a rejection of the credentials, and a refusal of this very request."""
        self._answered()
        if self._rejected_at is not None:
            log.info(unauthorized.OVER, extra={"server": self.server})
            self._rejected_at = None
        self._busy = _without(self._busy, (verb, what))
        if (verb, what) in self._forbidden:
            log.info("API server grants access again", extra={"verb": verb, "what": what})
            self._forbidden = _without(self._forbidden, (verb, what))

    def failed(self, error: ApiError) -> None:
        """A response about the object shows a reachable API server; so does one to another request meanwhile: it is slow."""
        if isinstance(error, NoAnswer) and self.clock() - self._answered_at < error.seconds:
            self._outage_seen_at = self.clock()
            self._log_seldom(_SLOW, "API server responds slowly; retrying", error)
            return
        if isinstance(error, Unreachable) or error.status in _UNSERVED:
            if self._outage is None:
                log.error("API server is unreachable; retrying", extra={"server": self.server, "error": error.problem})
            self._outage = error.problem
            self._outage_seen_at = self.clock()
            return
        self._answered()
        if error.status == _BUSY and not isinstance(error, OverBudget):
            request = (error.verb, error.what)
            self._outage_seen_at = self.clock()
            self._busy = {**self._busy, request: self._outage_seen_at}
            self._log_seldom(request, "API server is too busy; retrying after the delay it asks for", error)
        if isinstance(error, Unauthorized):
            # once for all requests: each is refused like this, before any role is considered
            if self._rejected_at is None:
                log.error(unauthorized.EVENT, extra={"server": self.server, "error": error.problem})
            self._rejected_at = self.clock()
        # a refusal by a policy is about that object: the feature that wanted to write it reports it
        elif isinstance(error, Forbidden) and not isinstance(error, Denied):
            self._log_forbidden(error)

    def _log_forbidden(self, error: ApiError) -> None:
        request = (error.verb, error.what)
        if request not in self._forbidden:
            log.error(
                "API server denies access; grant the rights of the chart's role",
                extra={"role": self.role, "verb": error.verb, "what": error.what, "error": error.problem},
            )
        self._forbidden = {**self._forbidden, request: self.clock()}

    def _log_seldom(self, subject: _Request, event: str, error: ApiError) -> None:
        now = self.clock()
        if now - self._logged.get(subject, -math.inf) >= _BUSY_LOG_SECONDS:
            self._logged[subject] = now
            log.warning(event, extra={"verb": error.verb, "what": error.what, "error": error.problem})

    def seconds_since_outage(self) -> float:
        """Seconds since a request last had no response, or was refused by a busy API server."""
        return self.clock() - self._outage_seen_at

    def _answered(self) -> None:
        self._answered_at = self.clock()
        if self._outage is not None:
            log.info("API server is reachable again", extra={"server": self.server})
            self._outage = None
            self.on_recovery()

    def problems(self, *, but: Collection[str] = ()) -> tuple[str, ...]:
        """The current problems, one sentence each. but: kinds that do not count."""
        found = [f"API server {self.server} is unreachable: {self._outage}"] if self._outage is not None else []
        if self._rejected_at is not None and self.clock() - self._rejected_at <= _REFUSAL_SECONDS:
            found.append(unauthorized.problem(self.server))
        earliest = self.clock() - _REFUSAL_SECONDS
        for sentence, refused in (("is too busy for", self._busy), ("forbids", self._forbidden)):
            requests = sorted(request for request, at in refused.items() if at >= earliest)
            found += [f"API server {sentence} {verb} {what}" for verb, what in requests if what not in but]
        return tuple(found)


def _without(refused: Mapping[_Request, float], request: _Request) -> Mapping[_Request, float]:
    """A new mapping: another thread may be reading the present one."""
    return {one: at for one, at in refused.items() if one != request} if request in refused else refused


@dataclass(eq=False)
class Health:
    """Serves the kubelet's probes, with /metrics: whether the process hangs, and whether its lists are complete."""

    api: ApiHealth
    waits_for: Callable[[], tuple[str, ...]]
    # beats as long as the event loop turns
    heartbeat: Heartbeat = field(default_factory=Heartbeat, init=False)

    def serve(
        self, address: tuple[str, int], registry: CollectorRegistry, protection: Protection = OPEN
    ) -> tuple[str, int]:
        """Serves probes and /metrics until the process ends; returns the address in use. Raises OperatorSettingsError."""
        try:
            server = serve(address, {"/healthz": self._live, "/readyz": self._ready}, registry, protection)
        except OSError as exc:
            problem = f"{address[0]}:{address[1]} cannot be used ({exc.strerror or exc})"
            raise OperatorSettingsError("httpAddress", problem) from exc
        host, port = server.server_address[:2]
        return str(host), int(port)

    def _live(self) -> tuple[bool, str]:
        """Liveness, and the problems. An unreachable API server does not fail it: a restart would not help."""
        hang = self.heartbeat.problem()
        if hang:
            return False, f"not ok\n{hang}"
        return True, "\n".join(("ok", *self.api.problems(), *tasks.problems()))

    def _ready(self) -> tuple[bool, str]:
        """Readiness: every list is complete and the API server responds; and the missing parts."""
        missing = (*self.api.problems(but=_ONLY_SHOWN), *self.waits_for())
        return not missing, "\n".join(("not ok", *missing)) if missing else "ok"
