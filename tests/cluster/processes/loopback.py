"""Fetches pages from 127.0.0.1, the address of all servers started here, without a proxy.

Many environments configure a proxy, and not every program bypasses it for loopback.
"""

import os
import urllib.error
import urllib.request

_OURS = ("127.0.0.1", "localhost")


def reach_loopback_directly() -> None:
    """Make this process and its children bypass proxies for loopback. Idempotent."""
    # programs read the one or the other spelling
    configured = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host for host in configured.split(",") if host]
    if "*" not in hosts:
        hosts += [host for host in _OURS if host not in hosts]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(hosts)


def fetch(url: str, timeout_seconds: float = 60.0, body: bytes | None = None) -> tuple[int, str]:
    """Status and body of a page; body: posted to it. Raises OSError without a response."""
    try:
        with urllib.request.urlopen(url, body, timeout=timeout_seconds) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def answers(url: str, timeout_seconds: float = 1.0) -> bool:
    """Whether a page exists, with status 200."""
    try:
        return fetch(url, timeout_seconds)[0] == 200
    except OSError:
        return False
