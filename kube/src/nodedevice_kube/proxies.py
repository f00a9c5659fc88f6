"""Finds the HTTP proxy to an API server, by kubectl's rules.

A kubeconfig's `proxy-url` decides alone; otherwise HTTPS_PROXY, HTTP_PROXY and NO_PROXY decide.
Source: client-go @ v0.37 tools/clientcmd; Go's golang.org/x/net/http/httpproxy.
"""

import base64
import ipaddress
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from nodedevice_kube.errors import BadKubeconfig
from nodedevice_kube.masking import remember_address

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxy:
    """authorization: value of the header Proxy-Authorization; "" for none. It is secret."""

    __slots__ = ("authorization", "host", "port")

    def __init__(self, host: str, port: int, authorization: str = "") -> None:
        self.host: Final = host
        self.port: Final = port
        self.authorization: Final = authorization

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    def __repr__(self) -> str:
        return self.url


def proxy_of(url: str, origin: str) -> Proxy:
    """Parse the URL of a proxy. origin: the source of the URL, for messages. Raises BadKubeconfig.

    kubectl also supports https:// and socks5:// proxies; these are refused.
    """
    remember_address(url)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme in ("https", "socks5", "socks5h"):
        problem = f"{origin} names a proxy by {parts.scheme}://, which nodedevice does not support"
        raise BadKubeconfig(problem, "name an http:// proxy; it also forwards HTTPS connections")
    if parts.scheme != "http" or not parts.hostname:
        raise BadKubeconfig(f"{origin} is not the URL of a proxy", "write it as http://HOST:PORT")
    # percent-encoded in a URL, but not in the header
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    authorization = f"Basic {base64.b64encode(pair.encode()).decode()}" if parts.username else ""
    return Proxy(parts.hostname, 80 if port is None else port, authorization)


def of_environment(scheme: str, host: str, port: int, environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy that the environment names for that server. Raises BadKubeconfig."""
    name, url = _first(environment, f"{scheme}_proxy")
    if not url or _is_local(host):
        return None
    _, exceptions = _first(environment, "no_proxy")
    if any(_matches(rule.strip().lower(), host.lower(), port) for rule in exceptions.split(",")):
        return None
    # Go reads HOST:PORT as http://HOST:PORT here, and only here.
    return proxy_of(url if "://" in url else f"http://{url}", name)


def _first(environment: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return name and value of the variable in capitals, else in small letters."""
    return next(((key, environment[key]) for key in (name.upper(), name) if environment.get(key)), (name, ""))


def _is_local(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _matches(rule: str, host: str, port: int) -> bool:
    """Whether a rule of NO_PROXY names that host and port."""
    if rule == "*":
        return True
    address = _address(host)
    if "/" in rule:
        try:
            return address is not None and address in ipaddress.ip_network(rule, strict=False)
        except ValueError:
            pass
    name, rule_port = _split_port(rule)
    if not name or (rule_port and rule_port != str(port)):
        return False
    named_address = _address(name)
    if address is not None or named_address is not None:
        return named_address == address
    is_subdomain_only = name.startswith((".", "*."))
    domain = name.removeprefix("*").removeprefix(".")
    return host.endswith(f".{domain}") or (host == domain and not is_subdomain_only)


def _split_port(rule: str) -> tuple[str, str]:
    """Split HOST:PORT or [IPv6]:PORT; an IPv6 address without brackets has no port."""
    if rule.startswith("["):
        host, _, rest = rule[1:].partition("]")
        return host, rest.removeprefix(":")
    host, colon, port = rule.partition(":")
    return (host, port) if colon and ":" not in port else (rule, "")


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
