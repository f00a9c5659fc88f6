"""Health of the agent, served at /healthz and /readyz beside /metrics.

healthz: the event loop still turns. readyz: plugins are served and the API server has been reached; names what is missing.
"""

import logging

from nodedevice_common import probes
from prometheus_client import REGISTRY

from nodedevice_agent.errors import AgentSettingsError

log = logging.getLogger(__name__)


class AgentHealth:
    """What the probes answer. beat() at least every few seconds from the event loop."""

    def __init__(self, *waits_for: str) -> None:
        self._heartbeat = probes.Heartbeat()
        self.beat = self._heartbeat.beat
        self._missing = dict.fromkeys(waits_for, "not yet")

    def is_there(self, what: str) -> None:
        self._missing.pop(what, None)

    def is_missing(self, what: str, why: str) -> None:
        self._missing[what] = why

    def is_ready(self, what: str) -> bool:
        return what not in self._missing

    def live(self) -> tuple[bool, str]:
        problem = self._heartbeat.problem()
        return not problem, problem or "ok"

    def ready(self) -> tuple[bool, str]:
        missing = sorted(self._missing.items())
        return not missing, "; ".join(f"{what}: {why}" for what, why in missing) or "ok"


def serve(address: str, health: AgentHealth) -> probes.ProbeServer:
    """Start serving on HOST:PORT (port 0: any; no host: loopback). Raises AgentSettingsError."""
    try:
        host, port = probes.parse_address(address)
        checks = {"/healthz": health.live, "/readyz": health.ready}
        server = probes.serve((host or "127.0.0.1", port), checks, REGISTRY)
    except OSError as exc:
        raise AgentSettingsError(f"--http-address {address}: {exc.strerror}") from exc
    except ValueError as exc:
        raise AgentSettingsError(f"--http-address {address!r}: must be HOST:PORT, such as 127.0.0.1:9808") from exc
    log.info("serving http", extra={"address": f"{host}:{server.server_port}"})
    return server
