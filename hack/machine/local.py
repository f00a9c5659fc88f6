"""`make up MACHINE=1`: one emulated machine as a node, with the chart installed, to play with."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.cluster.build.binaries import find
from tests.e2e.machine.cluster import SERIAL, MachineCluster, serial_ports

# what `device_add` makes of it is in the API within a second
_PORT = "AAA"


@contextmanager
def machine_cluster(folder: Path, progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    """folder: made for it, its path short. Raises ClusterError."""
    with MachineCluster.start(folder, progress) as cluster:
        progress("installing the chart")
        cluster.install(serial_ports())
        cluster.plug(_PORT, "1")
        cluster.wait_capacity(SERIAL, 1)
        yield cluster


def how_to_use(cluster: MachineCluster) -> list[str]:
    """Lines for a shell; those with # are for people."""
    return [
        kubectl_alias(find(["kubectl"])["kubectl"], cluster.control_plane.admin_kubeconfig),
        "# (it enters the network of the control plane and the machine, which is their own)",
        "# try: kubectl get nodes -o wide; kubectl get nodedevices -o wide; kubectl describe nodedevices",
        f"# a USB serial port is plugged in: pods ask for it by {SERIAL}",
        "# a shell in the machine: make machine-shell",
        f"# plug devices in and out, by QEMU's monitor: {cluster.machine.monitor}",
        f"# its console: {cluster.machine.console}    end it: make down",
    ]


def kubectl_alias(kubectl: Path, kubeconfig: Path) -> str:
    """A whole line for a shell: this process's network is where the API server listens."""
    command = ["nsenter", "--net", "--target", str(os.getpid()), str(kubectl), "--kubeconfig", str(kubeconfig)]
    return f"alias kubectl={shlex.quote(shlex.join(command))}"
