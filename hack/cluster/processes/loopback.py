"""Keeps proxies out of the way to 127.0.0.1, where everything listens that is started here.

Many a machine names a proxy in its environment, and not every program knows by itself that loopback is not behind it.
"""

import os

_OURS = ("127.0.0.1", "localhost")


def reach_loopback_directly() -> None:
    """From now on neither this process nor what it starts asks a proxy for loopback. Done already: nothing changes."""
    # programs read the one or the other spelling
    configured = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    hosts = [host for host in configured.split(",") if host]
    if "*" not in hosts:
        hosts += [host for host in _OURS if host not in hosts]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(hosts)
