"""The agent's liveness and readiness, without the server."""

import time

import pytest
from nodedevice_agent.health import AgentHealth
from nodedevice_common.http_server import HANG_SECONDS


def test_ready_once_nothing_is_missing() -> None:
    health = AgentHealth("pods", "node")
    health.report("pods", "no watch")
    assert health.ready() == (False, "node: not yet; pods: no watch")
    health.report("pods")
    health.report("node")
    assert health.ready() == (True, "ok")


def test_live_while_the_event_loop_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    health = AgentHealth()
    assert health.live()[0]
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + HANG_SECONDS + 5)
    assert not health.live()[0]
    health.beat()
    assert health.live()[0]


def test_another_problem_replaces_the_first_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes are answered by another thread: in between, the agent would be ready."""

    class Kept(dict[str, str]):
        def pop(self, *_: object) -> str:
            raise AssertionError("the first problem was removed before the second was there")

    health = AgentHealth("node")
    monkeypatch.setattr(health, "_missing", Kept(node="there is no Node"))
    health.report("node", "the Node cannot be read")
    assert health.ready() == (False, "node: the Node cannot be read")
