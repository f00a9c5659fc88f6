"""`make up` and `make down`: the whole product as a local cluster that stays until it is stopped.

`up` starts a keeper in the background that holds everything. The keeper's output goes to a log; when all is ready,
`up` prints the KUBECONFIG. One cluster per checkout; a second `up` prints the first one's, and waits for it while it
starts. Ctrl-C during the start ends it, including the keeper.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import click

from hack.machine.local import how_to_use, is_machine, machine_cluster, plug
from hack.machine.packages import why_not_here
from tests.cluster.build.binaries import find
from tests.cluster.errors import ClusterError
from tests.cluster.local.current import open_cluster
from tests.cluster.local.how_to_use import lines
from tests.cluster.local.stack import Stack
from tests.cluster.nodes import LENT_TAINT
from tests.cluster.processes.processes import Fork

_ROOT = Path(__file__).parents[3]
_UP_SECONDS = 1800.0
# cleaning up a borrowed cluster waits for namespaces to end
_DOWN_SECONDS = 120.0
_INTERRUPTED = 130


@click.group()
def main() -> None:
    """The whole product as a local cluster that stays until it is stopped."""


@main.command()
def up() -> None:
    """Start it, unless it runs, and print how to use it."""
    folder = _folder()
    running = _keeper(folder)
    if running is None:
        _start(folder)
    else:
        _check_asked(folder)
        if not _is_ready(folder):
            _follow(folder, lambda: not _is_alive(running))
    click.echo((folder / "ready").read_text(), nl=False)


@main.command()
def down() -> None:
    """End it. Does nothing if it does not run."""
    folder = _folder()
    keeper = _keeper(folder)
    if keeper is None:
        click.echo("no local cluster is up")
        return
    _end(folder, keeper)
    click.echo("the local cluster is down")


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("script", nargs=-1, type=click.UNPROCESSED)
def shell(script: tuple[str, ...]) -> None:
    """A shell in the machine of `make up MACHINE=1`; with arguments, the output of that command."""
    keeper = _machines_keeper()
    door = [sys.executable, "-m", "hack.machine.door", *script]
    os.execvp("nsenter", ["nsenter", "--net", "--target", str(keeper), *door])


@main.command()
@click.argument("way", type=click.Choice(["in", "out"]))
def stick(way: str) -> None:
    """Plug the USB serial port of the machine of `make up MACHINE=1` in, or pull it out."""
    _machines_keeper()
    plug(_folder() / "run", is_in=way == "in")


@main.command(hidden=True)
def keep() -> None:
    """Hold everything until SIGTERM. What `up` starts."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = _folder()
    try:
        if _is_machine():
            with machine_cluster(folder / "run", lambda line: print(line, flush=True)) as cluster:
                _publish(folder, how_to_use(cluster))
                cluster.control_plane.wait()
        with Stack.start(folder / "run", lambda line: print(line, flush=True), open_cluster=open_cluster) as stack:
            _write_ready(folder, stack)
            stack.control_plane.wait()
    except ClusterError as exc:
        print(exc, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        pass


def _write_ready(folder: Path, stack: Stack) -> None:
    kubectl = find(["kubectl"])["kubectl"]
    agents = {name: agent.folder for name, agent in stack.agents.items()}
    addresses = {f"agent of {name}": agent.address for name, agent in stack.agents.items()}
    addresses["operator"] = stack.operator.address
    notes = [f"pods without the toleration {LENT_TAINT.key} are kept off these nodes: nothing really runs there"]
    notes = notes if stack.control_plane.taints else []
    _publish(folder, lines(folder, stack.control_plane.admin_kubeconfig, kubectl, agents, addresses, notes))


def _publish(folder: Path, printed: list[str]) -> None:
    """Write the output of `up`; this also marks the cluster as ready."""
    temporary = folder / ".ready"
    temporary.write_text("\n".join(printed) + "\n")
    temporary.rename(folder / "ready")


def _is_machine() -> bool:
    """Whether the node is an emulated machine: MACHINE=1."""
    return os.environ.get("MACHINE", "") not in ("", "0")


def _start(folder: Path) -> None:
    """Start the keeper and wait until all is ready; Ctrl-C ends it. Raises ClickException if the start fails."""
    # SIGINT as well: a shell starts background processes with SIGINT ignored
    for ending in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ending, signal.default_int_handler)
    fork = Fork()
    try:
        keeper = _start_keeper(folder, fork)
        _follow(folder, lambda: keeper.poll() is not None)
    except KeyboardInterrupt:
        if (made := fork.made()) is not None:
            _end(folder, made.pid)
        click.echo("stopped; everything that was started has ended", err=True)
        sys.exit(_INTERRUPTED)


def _start_keeper(folder: Path, fork: Fork) -> "subprocess.Popen[bytes]":
    """Start the keeper in a new folder. Raises ClickException if that fails."""
    command = [sys.executable, "-m", "tests.cluster.local.local", "keep"]
    if _is_machine():
        if reason := why_not_here():
            raise click.ClickException(f"no machine can be had here: {reason}")
        # while a network is available: machines have only their own
        subprocess.run([sys.executable, "-m", "hack.machine"], cwd=_ROOT, check=True)
        command = ["unshare", "--net", *command]
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except OSError as exc:
        raise click.ClickException(f"{folder}: {exc.strerror}; remove it, or name another place by TMPDIR") from exc
    with (folder / "log").open("wb") as log:
        keeper = fork.make(
            command,
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    # written here, so that a concurrent `up` finds them
    (folder / "asked").write_text(_asked())
    (folder / "pid").write_text(str(keeper.pid))
    return keeper


def _follow(folder: Path, has_ended: Callable[[], bool]) -> None:
    """Show the keeper's log until all is ready. Raises ClickException when it ends before."""
    deadline = time.monotonic() + _UP_SECONDS
    with (folder / "log").open(encoding="utf-8", errors="replace") as log:
        while True:
            is_ready, is_over = _is_ready(folder), has_ended()
            for line in log:
                click.echo(f"  {line}", nl=False, err=True)
            if is_ready:
                return
            if is_over or time.monotonic() > deadline:
                raise click.ClickException(f"the local cluster did not come up; its log is {folder / 'log'}")
            time.sleep(0.1)


def _asked() -> str:
    """The settings that distinguish a cluster, as make passes them."""
    given = {name: os.environ.get(name, "") for name in ("CLUSTER", "MACHINE")}
    return "".join(f" {name}={value}" for name, value in given.items() if value not in ("", "0"))


def _check_asked(folder: Path) -> None:
    """Raises ClickException if another cluster than the requested one runs; `make up` without settings accepts any."""
    running = (folder / "asked").read_text()
    if _asked() not in ("", running):
        raise click.ClickException(
            f"another local cluster is up, that of `make up{running}`: end it first, by `make down`"
        )


def _end(folder: Path, keeper: int) -> None:
    """End the keeper gracefully, and remove its folder. Raises ClickException if it does not end."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(keeper, signal.SIGTERM)
    deadline = time.monotonic() + _DOWN_SECONDS
    while _is_alive(keeper):
        if time.monotonic() > deadline:
            raise click.ClickException(f"process {keeper} does not end; see {folder / 'log'}")
        time.sleep(0.1)
    shutil.rmtree(folder, ignore_errors=True)


def _is_ready(folder: Path) -> bool:
    return (folder / "ready").exists()


def _folder() -> Path:
    """One for each checkout and user; short, because it holds sockets."""
    key = hashlib.sha256(str(_ROOT).encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir()) / f"nodedevice-{os.getuid()}-{key}"


def _keeper(folder: Path) -> int | None:
    """Process ID of the keeper that holds this folder's cluster, if it runs."""
    try:
        pid = int((folder / "pid").read_text())
    except (FileNotFoundError, ValueError):
        return None
    return pid if _is_alive(pid) else None


def _machines_keeper() -> int:
    """Process ID of the keeper of `make up MACHINE=1`. Raises ClickException if another cluster runs, or none."""
    keeper = _keeper(_folder())
    if keeper is None or not is_machine(_folder() / "run"):
        raise click.ClickException("no machine is up: make up MACHINE=1")
    return keeper


def _is_alive(pid: int) -> bool:
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"tests.cluster.local.local" in arguments


if __name__ == "__main__":
    main()
