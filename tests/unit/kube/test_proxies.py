"""Which proxy the environment names, by the rules of Go's httpproxy, and which proxies are refused."""

import base64

import pytest
from nodedevice_kube.errors import BadKubeconfig
from nodedevice_kube.proxies import of_environment, proxy_of


@pytest.mark.parametrize(
    ("host", "exceptions", "is_by_proxy"),
    [
        ("api.example.com", "", True),
        ("api.example.com", "*", False),
        ("api.example.com", "x, API.example.com ,", False),
        ("api.example.com", "example.com", False),
        ("api.example.com", ".example.com", False),
        ("example.com", ".example.com", True),
        ("example.com", "example.com", False),
        ("notexample.com", "example.com", True),
        ("api.example.com", "api.example.com:6443", False),
        ("api.example.com", "api.example.com:443", True),
        ("api.example.com", ":6443", True),
        ("api.example.com", "10.0.0.0/8", True),
        ("10.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", False),
        ("10.1.2.3", "10.1.2.3:6443", False),
        ("fd00::1", "fd00::/8", False),
        ("fd00::1", "[fd00::1]:6443", False),
        ("fd00::1", "fd00:0::1", False),
        ("localhost", "", False),
        ("127.0.0.9", "", False),
        ("::1", "", False),
        ("::ffff:127.0.0.1", "", False),
    ],
)
def test_exceptions(host: str, exceptions: str, is_by_proxy: bool) -> None:
    environment = {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": exceptions}
    proxy = of_environment("https", host, 6443, environment)
    assert (proxy.url if proxy else "") == ("http://proxy:3128" if is_by_proxy else "")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": "http://big", "https_proxy": "http://small"}, "http://big:80"),
        ({"HTTPS_PROXY": "", "https_proxy": "small:3128"}, "http://small:3128"),
        ({"HTTP_PROXY": "http://other", "ALL_PROXY": "http://all"}, ""),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": "x", "no_proxy": "api"}, "http://big:80"),
        ({"HTTPS_PROXY": "http://big", "NO_PROXY": "", "no_proxy": "api"}, ""),
        ({"HTTPS_PROXY": "http://[fd00::1]:3128"}, "http://[fd00::1]:3128"),
    ],
)
def test_which_variable_counts(environment: dict[str, str], expected: str) -> None:
    proxy = of_environment("https", "api", 443, environment)
    assert (proxy.url if proxy else "") == expected


def test_a_password_is_sent_and_not_shown() -> None:
    proxy = proxy_of("http://some%40one:p%3Aw@proxy", "proxy-url")
    assert proxy.authorization == f"Basic {base64.b64encode(b'some@one:p:w').decode()}"
    shown = f"{proxy} {proxy!r} {proxy.url}"
    assert "p:w" not in shown
    assert proxy.authorization not in shown


@pytest.mark.parametrize(
    "url",
    [
        "https://u:PASSWORD@proxy",
        "socks5://u:PASSWORD@proxy",
        "u:PASSWORD@proxy:1",
        "http://",
        "http://u:PASSWORD@proxy:x",
    ],
)
def test_other_proxies_are_refused_by_name(url: str) -> None:
    with pytest.raises(BadKubeconfig) as refused:
        proxy_of(url, "proxy-url of context x")
    assert "proxy-url of context x" in refused.value.problem
    assert "PASSWORD" not in str(refused.value)
