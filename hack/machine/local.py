"""`make up MACHINE=1`: one emulated machine as a node, with the chart installed, to play with."""

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from qemu.qmp.error import QMPError
from qemu.qmp.legacy import QEMUMonitorProtocol

from hack.machine.virtual_machine import SECOND_MONITOR, serial_properties
from tests.cluster.build.binaries import find
from tests.cluster.local.how_to_use import ROOT, TYPED, a_pod
from tests.e2e.machine.cluster import BY_ID, SERIAL, MachineCluster, serial_ports

# the API shows the result of `device_add` within a second
_SERIAL: Final = "AAA"
_PORT: Final = "1"


@contextmanager
def machine_cluster(folder: Path, progress: Callable[[str], None]) -> Iterator[MachineCluster]:
    """folder: made for it, its path short. Raises ClusterError."""
    with MachineCluster.start(folder, progress) as cluster:
        progress("installing the chart")
        cluster.install(serial_ports())
        cluster.plug(_SERIAL, _PORT)
        cluster.wait_capacity(SERIAL, 1)
        yield cluster


def how_to_use(cluster: MachineCluster) -> list[str]:
    """Lines for a shell; lines with # are for people."""
    return [
        kubectl_alias(find(["kubectl"])["kubectl"], cluster.control_plane.admin_kubeconfig),
        "# (it enters the network of the control plane and the machine, which is their own)",
        *what_to_type(),
        f"# other devices, by QEMU's monitor (QMP): {cluster.machine.second_monitor}",
        f"# its console: {cluster.machine.console}    end it: make down",
    ]


def what_to_type() -> list[str]:
    return [
        "# two lines make a pod with the USB serial port that is plugged in, and one shows which pod has which:",
        *a_pod(ROOT / "hack/machine/pod.yaml"),
        "# the device in the pod:",
        f"{TYPED}kubectl wait --for=condition=Ready pod/try --timeout=2m",
        f"{TYPED}kubectl exec try -- ls -l {BY_ID}",
        "# pull the port out, and plug it in again:",
        f"{TYPED}make machine-unplug",
        f"{TYPED}kubectl get nodedevices -o wide",
        f"{TYPED}make machine-plug",
        "# a shell in the machine:",
        f"{TYPED}make machine-shell",
    ]


def is_machine(folder: Path) -> bool:
    """Whether the cluster in this folder has a machine."""
    return bool(_monitors(folder))


def plug(folder: Path, *, is_in: bool) -> None:
    """Plug the serial port into the machine of that folder, or out of it. Raises ClickException, also if there is
    nothing to change.
    """
    client = QEMUMonitorProtocol(str(_monitors(folder)[0]))
    properties = serial_properties(_SERIAL, _PORT)
    try:
        client.connect()
        if is_in:
            client.cmd("device_add", **properties)
        else:
            client.cmd("device_del", id=properties["id"])
    except (QMPError, OSError) as exc:
        raise click.ClickException(f"the machine's monitor: {exc}") from exc
    finally:
        client.close()


def _monitors(folder: Path) -> list[Path]:
    return list(folder.glob(f"*/m/{SECOND_MONITOR}"))


def kubectl_alias(kubectl: Path, kubeconfig: Path) -> str:
    """An alias for a shell: the API server listens in this process's network."""
    command = ["nsenter", "--net", "--target", str(os.getpid()), str(kubectl), "--kubeconfig", str(kubeconfig)]
    return f"alias kubectl={shlex.quote(shlex.join(command))}"
