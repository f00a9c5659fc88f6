"""A proxy in the environment has no say about 127.0.0.1."""

import urllib.request

import pytest

from hack.cluster.processes.loopback import reach_loopback_directly


@pytest.mark.parametrize(
    ("name", "value", "then"),
    [
        pytest.param("no_proxy", "", "127.0.0.1,localhost", id="nothing said"),
        pytest.param("no_proxy", ".example.com", ".example.com,127.0.0.1,localhost", id="others stay"),
        pytest.param("NO_PROXY", "localhost", "localhost,127.0.0.1", id="the other spelling"),
        pytest.param("no_proxy", "*", "*", id="no proxy at all"),
    ],
)
def test_loopback_is_reached_directly(monkeypatch: pytest.MonkeyPatch, name: str, value: str, then: str) -> None:
    for spelling in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(spelling, "")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv(name, value)
    reach_loopback_directly()
    reach_loopback_directly()
    assert urllib.request.getproxies()["no"] == then
    assert urllib.request.proxy_bypass("127.0.0.1")
