"""The machines' network: a bridge in a network namespace of its own, with the control plane in it. It ends with its last
process.

It forwards nothing to other networks, and changes no setting of this machine's own network: processes that start
machines run below `unshare --net` (`enter` does that to a process that is about to begin).
"""

import os
import socket
import subprocess
import sys

from tests.cluster.errors import CommandError

BRIDGE = "nd0"
HOST = "10.77.0.1"


def services(cluster: int = 0) -> str:
    """The network of a cluster's Services. Only the API server's address is reachable: a relay has it."""
    return f"10.77.0.{128 + 32 * cluster}/27"


def is_own() -> bool:
    """Whether this process is in a network namespace of its own: all its links are ours."""
    return all(name in ("lo", BRIDGE) or name.startswith("tap") for name in _links())


def enter(module: str) -> None:
    """Run this program again in a namespace of its own, if necessary; does not return then."""
    if not is_own():
        os.execvp("unshare", ["unshare", "--net", sys.executable, "-m", module, *sys.argv[1:]])


def create(service_address: str) -> None:
    """Make the bridge, once for the namespace, and give it that address too. Raises CommandError with ip's message."""
    if not is_own():
        raise RuntimeError("machines belong into a network namespace of their own: run below `unshare --net`")
    if BRIDGE not in _links():
        _ip("link", "set", "lo", "up")
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")
    _ip("address", "replace", f"{service_address}/32", "dev", BRIDGE)


def add_tap(name: str, address: str, pods: str) -> None:
    """Add a machine's end of the bridge. pods: the network of its pods, which are reached through it."""
    _ip("tuntap", "add", "dev", name, "mode", "tap")
    _ip("link", "set", name, "master", BRIDGE, "up")
    _ip("route", "replace", pods, "via", address)


def remove_tap(name: str) -> None:
    _ip("tuntap", "del", "dev", name, "mode", "tap")


def cut(name: str) -> None:
    """Make a partition: no packets pass, without any notification."""
    _ip("link", "set", name, "down")


def restore(name: str) -> None:
    _ip("link", "set", name, "up")


def _links() -> set[str]:
    return {name for _, name in socket.if_nameindex()}


def _ip(*arguments: str) -> None:
    command = ["ip", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)
