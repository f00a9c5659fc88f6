"""The agent's liveness and readiness, as /healthz and /readyz report them."""

from nodedevice_common import http_server, tasks


class AgentHealth:
    """/healthz: whether the event loop still turns. /readyz: the unready parts, such as the API server. A thread reads both."""

    def __init__(self, *waits_for: str) -> None:
        self._heartbeat = http_server.Heartbeat()
        self.beat = self._heartbeat.beat
        self._missing = dict.fromkeys(waits_for, "not yet")

    def report(self, what: str, problem: str = "") -> None:
        """problem: why it is missing; empty once it is there."""
        # in one step, because another thread reads it
        if problem:
            self._missing[what] = problem
        else:
            self._missing.pop(what, None)

    def live(self) -> tuple[bool, str]:
        problem = self._heartbeat.problem()
        return not problem, problem or "\n".join(("ok", *tasks.problems()))

    def ready(self) -> tuple[bool, str]:
        missing = sorted(self._missing.items())
        return not missing, "; ".join(f"{what}: {why}" for what, why in missing) or "ok"
