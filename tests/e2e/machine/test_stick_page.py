"""docs/k3s-usb-stick.md, typed on a machine with such a stick: who may open it, the pod that reads it, out of its port and back.

Not typed is what installs k3s and the chart.
"""

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from qemu.qmp.error import QMPError

from hack.machine.virtual_machine import serial_properties
from tests.cluster.build.images import TEST_IMAGE
from tests.cluster.shell import shell_environment
from tests.e2e.machine.cluster import MachineCluster
from tests.e2e.machine.observed import NOT_THERE
from tests.e2e.pages import ROOT, commands_of, typed

_PAGE: Final = (ROOT / "docs/k3s-usb-stick.md").read_text("utf-8")
_COMMANDS: Final = commands_of(_PAGE, in_sentences=False)
# what installs k3s and the chart, in whose place this machine is
_NOT_HERE: Final = ("curl ", "export KUBECONFIG=", "make install", "helm install ")
_CONFIG, _POD = "<<'STICK'", "<<'READER'"
_STAT, _READ, _ALL = "stat -L", "kubectl wait ", "nodedevices,poddevices"
_EVENTS, _WIDE, _SECURITY, _AGENT, _DESCRIBED = (
    "describe pod",
    "-o wide",
    "get pod reader",
    "kubectl logs -n nodedevice-system",
    "describe nodedevices",
)
_CONFIGS: Final = "get nodedeviceconfigs"
_DISCOVER: Final = "nodedevice-agent discover"
# what follows _READ in the same command
_LOGS: Final = "kubectl logs reader"
_SERIAL: Final = "STICK"
_SENT: Final = "21.5"


class Stick:
    """A USB serial port that sends what a test has it send."""

    def __init__(self, cluster: MachineCluster, path: Path) -> None:
        self._machine = cluster.machine
        self._path = path

    def plug(self, port: str) -> None:
        """always_plugged: also while nobody listens at its other end."""
        self._machine.command("device_add", **serial_properties(_SERIAL, port), always_plugged=True)

    def unplug(self) -> None:
        self._machine.remove(f"s{_SERIAL}")

    def send(self, text: str) -> None:
        with socket.socket(socket.AF_UNIX) as end:
            end.connect(str(self._path))
            end.sendall(f"{text}\n".encode())
            # the guest reads it from the emulator at its own pace
            time.sleep(1)


@pytest.fixture
def stick(cluster: MachineCluster) -> Iterator[Stick]:
    path = cluster.machine.folder / "stick"
    with _other_end(cluster, path):
        made = Stick(cluster, path)
        made.plug("3")
        yield made
        with suppress(QMPError):
            made.unplug()
    cluster.control_plane.kubectl("delete", "nodedeviceconfigs", "--all")


@contextmanager
def _other_end(cluster: MachineCluster, path: Path) -> Iterator[None]:
    address = {"type": "unix", "data": {"path": str(path)}}
    data = {"addr": address, "server": True, "wait": False}
    cluster.machine.command("chardev-add", id=f"c{_SERIAL}", backend={"type": "socket", "data": data})
    try:
        yield
    finally:
        cluster.machine.command("chardev-remove", id=f"c{_SERIAL}")


def test_from_a_stick_to_a_pod_that_reads_it(cluster: MachineCluster, stick: Stick) -> None:
    cluster.machine.run(f"until ls /dev/serial/by-id 2>/dev/null | grep -q {_SERIAL}; do sleep 0.2; done")
    printed = cluster.machine.run(_command(_STAT))
    assert re.search(rf"_{_SERIAL}-if00-port0 crw-rw---- root:dialout \(20\)$", printed), printed

    seen = _type(cluster, _command(_DISCOVER))
    assert re.search(rf"/dev/ttyUSB\d+ = /dev/serial/by-id/\S*_{_SERIAL}-if00-port0 .*, group 20\)", seen), seen
    assert "supplementalGroups: [20]" in seen
    assert f'serial: "{_SERIAL}"' in seen
    _type(cluster, _command(_CONFIG))
    assert "offered already, as example.com/stick" in _type(cluster, _command(_DISCOVER))
    _type(cluster, _pod())
    _type(cluster, _command(_READ))
    _until_read(cluster, stick, "first")
    seen = _type(cluster, _command(_ALL))
    assert re.search(r"example\.com/stick +1 +1 +1 +0 +True +0 ", seen), seen
    assert re.search(rf"poddevice\S*/reader .*example\.com/stick=1 +\S*_{_SERIAL}-\S+ +Healthy", seen), seen

    stick.unplug()
    cluster.wait(lambda: "Unhealthy" in _type(cluster, "kubectl get poddevices"), "the pod's stick is missing")
    cluster.wait(lambda: re.search(NOT_THERE, _type(cluster, _command(_EVENTS))) is not None, "its container waits")
    assert "example.com/stick" in _type(cluster, _command(_WIDE))
    stick.plug("2")
    _until_read(cluster, stick, "second")


def test_permission_denied(cluster: MachineCluster, stick: Stick) -> None:
    """The page's pod without the group, and each command of that section."""
    _type(cluster, _command(_CONFIG))
    without = _pod().replace("    supplementalGroups: [20]\n", "")
    assert without != _pod()
    _type(cluster, without)
    cluster.wait(lambda: "Permission denied" in _type(cluster, _LOGS, check=False), "its log has the words")
    assert '"runAsUser":1000' in _type(cluster, _command(_SECURITY))
    cluster.wait(lambda: "reader" in _type(cluster, _command(_AGENT), check=False), "the agent has logged it")
    assert "Healthy" in _type(cluster, _command(_DESCRIBED))
    assert re.search(r"^stick +0 +1 +1 +0 ", _type(cluster, _command(_CONFIGS)), re.MULTILINE)


def test_no_other_command_is_on_the_page() -> None:
    known = (_CONFIG, _POD, _STAT, _READ, _ALL, _EVENTS, _WIDE, _SECURITY, _AGENT, _DESCRIBED, _CONFIGS, _DISCOVER)
    assert [
        each for each in _COMMANDS if not each.startswith(_NOT_HERE) and not any(part in each for part in known)
    ] == []
    assert [each for each in _NOT_HERE if not any(command.startswith(each) for command in _COMMANDS)] == []


def _command(part: str) -> str:
    """The only one with that part."""
    [found] = [each for each in _COMMANDS if part in each and not each.startswith(_NOT_HERE)]
    return found


def _pod() -> str:
    """Of an image that this machine has."""
    pod = _command(_POD)
    assert "image: busybox:1\n" in pod
    return pod.replace("busybox:1", TEST_IMAGE)


def _type(cluster: MachineCluster, command: str, *, check: bool = True) -> str:
    environment = shell_environment(cluster.control_plane.admin_kubeconfig, cluster.control_plane.folder)
    done = typed(command, environment, timeout_seconds=300)
    assert done.returncode == 0 or not check, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def _until_read(cluster: MachineCluster, stick: Stick, word: str) -> None:
    """Until the pod's log has what the stick sends, again and again: before the pod has opened it, nobody hears."""

    def is_read() -> bool:
        stick.send(f"{word} {_SENT}")
        return f"{word} {_SENT}" in _type(cluster, _LOGS, check=False)

    cluster.wait(is_read, f"the pod reads {word!r}")
