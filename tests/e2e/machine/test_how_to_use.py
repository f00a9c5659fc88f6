"""What `make up MACHINE=1` prints, typed: a pod that gets the machine's serial port, which is pulled out and plugged in again."""

import os
from collections.abc import Iterator

import click
import pytest

from hack.machine.local import is_machine, plug, what_to_type
from tests.cluster.build.binaries import find
from tests.cluster.local.how_to_use import TYPED
from tests.e2e.chart.cluster import NODE
from tests.e2e.machine.cluster import SERIAL, MachineCluster, serial_ports
from tests.e2e.pages import typed


@pytest.fixture
def plugged(cluster: MachineCluster) -> Iterator[MachineCluster]:
    """As `make up MACHINE=1` leaves it. A configuration goes before the agents' file, where another resource has the port."""
    spec = {"plugins": {"generic": [serial_ports()]}}
    config = {"apiVersion": "nodedevice.io/v1alpha1", "kind": "NodeDeviceConfig", "metadata": {"name": "ports"}}
    cluster.apply({**config, "spec": spec})
    cluster.plug("AAA", "1")
    cluster.wait_capacity(SERIAL, 1)
    yield cluster
    cluster.control_plane.kubectl("delete", "nodedeviceconfigs", "ports")


def test_each_line_works(plugged: MachineCluster) -> None:
    outputs: dict[str, str] = {}
    folder = plugged.nodes[NODE].machine.folder.parents[1]
    assert is_machine(folder)
    for line in what_to_type():
        match line.removeprefix(TYPED).split():
            case ["make", "machine-unplug"]:
                plug(folder, is_in=False)
                plugged.wait(lambda: bool(plugged.unhealthy(SERIAL)), "the API says that the pod's port is missing")
            case ["make", "machine-plug"]:
                plug(folder, is_in=True)
                plugged.wait(lambda: not plugged.unhealthy(SERIAL), "it is back")
            case ["kubectl", *_]:
                outputs[line] = _typed(plugged, line.removeprefix(TYPED))
    [shown] = [output for line, output in outputs.items() if line.endswith("get poddevices")]
    assert "_AAA-if00" in shown
    [listed] = [output for line, output in outputs.items() if "kubectl exec" in line]
    assert "AAA" in listed
    with pytest.raises(click.ClickException, match="Duplicate"):
        plug(folder, is_in=True)


def _typed(cluster: MachineCluster, command: str) -> str:
    environment = {
        **os.environ,
        "PATH": f"{find(['kubectl'])['kubectl'].parent}{os.pathsep}{os.environ['PATH']}",
        "KUBECONFIG": str(cluster.control_plane.admin_kubeconfig),
        "HOME": str(cluster.control_plane.folder),
    }
    done = typed(command, environment, timeout_seconds=300)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
