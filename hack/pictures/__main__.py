"""`make pictures`: runs the product, types commands into a terminal, and draws what it shows. A minute."""

import fcntl
import os
import pty
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
from nodedevice_agent.plugins.simulated import control

from hack import yaml_text
from hack.pictures.svg import THEMES, drawn
from tests.cluster.cluster import a_pod
from tests.cluster.errors import ClusterError
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.cluster.shell import shell_environment
from tests.cluster.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
FOLDER: Final = ROOT / "docs/pictures"
_COLUMNS: Final = 112
_SOON_SECONDS: Final = 30.0
_PROMPT: Final = "\x1b[1m$ {}\x1b[0m\n"
_GPU_A: Final = f"{NODE_A}.example.com.gpu"


def main() -> int:
    # sockets need a short path, wherever this project lies
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-pictures-"))
    try:
        with Stack.start(folder, progress=click.echo) as stack:
            _Scene(stack).play()
    except (ClusterError, TimeoutError, subprocess.SubprocessError) as exc:
        click.echo(f"no pictures: {exc}", err=True)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


class _Scene:
    """Some pods, a device that is broken, one that is cordoned, and a pod that waits."""

    def __init__(self, stack: Stack) -> None:
        self._stack = stack
        self._kubectl = stack.control_plane.kubectl
        environment = shell_environment(stack.control_plane.admin_kubeconfig, stack.control_plane.folder)
        self._environment = environment | {"TERM": "xterm-256color"}

    def play(self) -> None:
        for pod, count in (("train", 2), ("infer", 1)):
            self._apply(pod, count)
            self._until(f"{pod} holds devices", "get", "poddevice", pod, "--ignore-not-found", "-o", "name")
        control.set_health(self._stack.agents[NODE_A].folder, GPU, self._free(), healthy=False)
        self._until("it is reported", "get", "events", "--field-selector=reason=DeviceUnhealthy", "-o", "name")
        self._type(f"kubectl nodedevice cordon {NODE_B} --device gpu-1 --reason fan")
        self._apply("notebook", 2)
        self._until(
            "notebook cannot be scheduled",
            *("get", "events", "--field-selector=reason=FailedScheduling,involvedObject.name=notebook", "-o", "name"),
        )
        commands = ("kubectl nodedevice", "kubectl nodedevice why pod notebook")
        draw("overview", "\n".join(map(self._type, commands)), "kubectl nodedevice", _COLUMNS)

    def _apply(self, pod: str, count: int) -> None:
        self._stack.control_plane.apply(yaml_text.dump_all([a_pod(pod, "default", {GPU: count})]))

    def _free(self) -> str:
        """A GPU of the first node that no pod has."""
        path = "jsonpath={.status.devices[*].id} {.status.allocations[*].deviceIDs[*]}"
        ids = self._kubectl("get", "nodedevice", _GPU_A, "-o", path).split()
        return next(each for each in ids if ids.count(each) == 1)

    def _until(self, what: str, *arguments: str) -> None:
        wait_until(lambda: self._kubectl(*arguments) != "", what, _SOON_SECONDS)

    def _type(self, command: str) -> str:
        """What the terminal shows, the command with its prompt first."""
        return _PROMPT.format(command) + in_terminal(command, self._environment, _COLUMNS)


def draw(name: str, text: str, title: str, columns: int) -> None:
    """Write the picture in each of its forms."""
    FOLDER.mkdir(exist_ok=True)
    for theme in THEMES:
        (FOLDER / f"{name}-{theme}.svg").write_text(drawn(text, title, name, theme, columns), encoding="utf-8")
    click.echo(f"drawn: {name}")


def in_terminal(command: str, environment: Mapping[str, str], columns: int) -> str:
    """Run it in a terminal of so many columns; what that shows, with its colours. Raises subprocess.TimeoutExpired."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
    with subprocess.Popen(
        shlex.split(command), cwd=ROOT, env=dict(environment), stdin=its, stdout=its, stderr=its, start_new_session=True
    ) as process:
        os.close(its)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:
            # Linux says so when nobody has the other end any more
            pass
        finally:
            os.close(ours)
        process.wait(timeout=60)
    return shown.decode(errors="replace").replace("\r\n", "\n")


if __name__ == "__main__":
    sys.exit(main())
