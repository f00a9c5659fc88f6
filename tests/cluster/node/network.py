"""The only network link of a real node on the machine: an empty bridge with the node's address.

A kubelet refuses an address on loopback; pods get theirs on the same bridge. Routes and settings of the machine stay
unchanged.
"""

import random
import subprocess
from dataclasses import dataclass

from tests.cluster.errors import CommandError

# Rarely used private addresses; each run takes a network of its own among them.
_NETWORKS = "10.213"


@dataclass(frozen=True)
class NodeNetwork:
    """bridge: name of the link. number: as 7 for 10.213.7.0/24, whose lower half is the node's and its pods'.

    The upper half is for Services of a control plane that lets this node's pods reach it: the bridge owns the address, and
    a pod on the bridge needs no route to it.
    """

    bridge: str
    number: int

    @property
    def address(self) -> str:
        return f"{_NETWORKS}.{self.number}.1"

    @property
    def subnet(self) -> str:
        return f"{_NETWORKS}.{self.number}.0/24"

    @property
    def last_pod_address(self) -> str:
        return f"{_NETWORKS}.{self.number}.126"

    @property
    def services(self) -> str:
        return f"{_NETWORKS}.{self.number}.128/25"


def choose(key: str, number: int | None = None) -> NodeNetwork:
    """key: of the run; determines the bridge's name. number: of the network; a free one by default."""
    return NodeNetwork(f"nd{key}", free_number() if number is None else number)


def free_number() -> int:
    """A network number that no link of this machine uses."""
    in_use = _ip("-oneline", "-4", "address", "show")
    free = [number for number in range(256) if f" {_NETWORKS}.{number}." not in in_use]
    return random.choice(free)


def create(network: NodeNetwork) -> None:
    """Make the bridge. Raises CommandError with ip's message."""
    _ip("link", "add", network.bridge, "type", "bridge")
    _ip("address", "add", f"{network.address}/24", "dev", network.bridge)
    _ip("link", "set", network.bridge, "up")


def add_address(network: NodeNetwork, address: str) -> None:
    """Add an address to the bridge; it is removed with the bridge. Raises CommandError with ip's message."""
    _ip("address", "add", f"{address}/32", "dev", network.bridge)


def _ip(*arguments: str) -> str:
    command = ["ip", *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)
    return done.stdout
