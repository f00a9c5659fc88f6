"""Lets pods of a real node reach the API server at the address of the Service `kubernetes`, as on any cluster.

It needs no kube-proxy, and no packet filters, which some machines lack. The Service's address is put on the node's
own bridge, where pods find it without a route. Connections to it are passed on to the API server on loopback. Start
the control plane with the Services of the node's network (`NodeNetwork.services`), and the node with that network's
number.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.control_plane.layout import api_address
from tests.cluster.node import network as node_network
from tests.cluster.node.real_node import RealNode
from tests.cluster.processes.processes import Process, tail

RELAY = Path(__file__).with_name("relay.py")
PORT = 443  # of the Service `kubernetes`: no flag changes it
_READY_SECONDS = 60.0


@contextmanager
def reachable_from_pods(control_plane: ControlPlane, node: RealNode) -> Iterator[None]:
    """Yields for the length of the block. Raises CommandError or ComponentError."""
    address = api_address(node.network.services)
    node_network.add_address(node.network, address)
    with relayed(control_plane, address, node.folder / "logs" / "relay.log"):
        yield


@contextmanager
def relayed(control_plane: ControlPlane, address: str, log: Path) -> Iterator[None]:
    """Relays connections at an address of ours to the API server. Raises ComponentError."""
    server = urlsplit(control_plane.url)
    command = [sys.executable, "-I", "-S", str(RELAY), address, str(PORT)]
    relay = Process("relay", [*command, str(server.hostname), str(server.port)], log)
    relay.start()
    try:
        relay.wait_ready(lambda: "listening" in tail(log), _READY_SECONDS)
        yield
    finally:
        relay.kill()
