"""The one network link that a real node has outside: an empty bridge, whose address is the node's.

A kubelet refuses an address on loopback; pods get theirs on the same bridge. Nothing is routed, no setting of the machine changes.
"""

import random
import subprocess
from dataclasses import dataclass

from tests.cluster.errors import CommandError

# Private addresses that hardly anybody uses; each run takes a network of its own among them.
_NETWORKS = "10.213"


@dataclass(frozen=True)
class NodeNetwork:
    """bridge: name of the link. subnet: pods' and the node's, as 10.213.7.0/24."""

    bridge: str
    address: str
    subnet: str


def choose(key: str) -> NodeNetwork:
    """A network that no link of this machine has. key: of the run; makes the bridge's name."""
    in_use = _ip("-oneline", "-4", "address", "show")
    free = [number for number in range(256) if f" {_NETWORKS}.{number}." not in in_use]
    number = random.choice(free)
    return NodeNetwork(f"nd{key}", f"{_NETWORKS}.{number}.1", f"{_NETWORKS}.{number}.0/24")


def create(network: NodeNetwork) -> None:
    """Make the bridge. Raises CommandError with what ip said."""
    _ip("link", "add", network.bridge, "type", "bridge")
    _ip("address", "add", f"{network.address}/24", "dev", network.bridge)
    _ip("link", "set", network.bridge, "up")


def _ip(*arguments: str) -> str:
    command = ["ip", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)
    return done.stdout
