"""/healthz, /readyz and /metrics, and errors for an unusable address."""

import errno
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib import probes as http
from nodedevice_agent.lib.probes import AgentHealth
from nodedevice_common.probes import HANG_SECONDS


@pytest.fixture
def health() -> AgentHealth:
    return AgentHealth("node", "api server")


@pytest.fixture
def port(health: AgentHealth) -> Iterator[int]:
    server = http.serve("127.0.0.1:0", health)
    yield server.server_port
    server.shutdown()
    server.server_close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_ready_when_nothing_is_missing(health: AgentHealth, port: int) -> None:
    assert get(port, "/readyz") == (503, "api server: not yet; node: not yet\n")
    health.is_there("node")
    health.is_missing("api server", "the lease cannot be renewed")
    assert get(port, "/readyz") == (503, "api server: the lease cannot be renewed\n")
    health.is_there("api server")
    health.is_there("never missed")
    assert get(port, "/readyz?verbose") == (200, "ok\n")
    assert health.is_ready("node")


def test_healthy_while_the_event_loop_turns(health: AgentHealth, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + HANG_SECONDS + 5)
    status, said = get(port, "/healthz")
    assert (status, "has not turned for 35 s" in said) == (503, True)
    health.beat()
    assert get(port, "/healthz") == (200, "ok\n")


def test_metrics_and_unknown_paths(port: int) -> None:
    status, text = get(port, "/metrics")
    assert status == 200
    assert "# TYPE nodedevice_agent_devices gauge" in text
    assert get(port, "/") == (404, "not found; known are /healthz, /readyz, /metrics\n")


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("", id="nothing"),
        pytest.param("localhost:", id="no port"),
        pytest.param("localhost:http", id="a service name"),
        pytest.param("127.0.0.1:-1", id="negative"),
        pytest.param("127.0.0.1:99999", id="too high"),
        pytest.param("127.0.0.1:²", id="digits that are no number"),
        pytest.param("not a host:9808", id="no host name"),
        pytest.param("203.0.113.1:9808", id="an address of another machine"),
    ],
)
def test_an_unusable_address_is_an_error(address: str, health: AgentHealth) -> None:
    with pytest.raises(AgentSettingsError, match="--http-address"):
        http.serve(address, health)


def test_a_port_in_use_is_an_error(port: int, health: AgentHealth) -> None:
    with pytest.raises(AgentSettingsError, match=rf"--http-address 127\.0\.0\.1:{port}: Address already in use"):
        http.serve(f"127.0.0.1:{port}", health)


def has_ipv6() -> bool:
    if not socket.has_ipv6:
        return False
    with socket.socket(socket.AF_INET6) as probe:
        return probe.connect_ex(("::1", 9)) in (0, errno.ECONNREFUSED)


@pytest.mark.parametrize(
    "address", [":0", pytest.param("[::1]:0", marks=pytest.mark.skipif(not has_ipv6(), reason="no IPv6 here"))]
)
def test_other_forms_of_a_local_address(address: str, health: AgentHealth) -> None:
    server = http.serve(address, health)
    assert server.server_port > 0
    server.shutdown()
    server.server_close()
