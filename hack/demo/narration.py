"""What the demos have in common: a folder, a verdict, a heading for each step, and Ctrl-C that ends them wherever it comes.

An interrupt that comes while Python runs a destructor or a callback of the garbage collector is printed and forgotten by the
interpreter. So it is remembered, and checked before the next step.
"""

import os
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.cluster.api import ApiError
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.processes.processes import removed_at_the_end
from tests.cluster.shell import shell_environment

# 1: the command worked, and something needs attention
_WORKED = (0, 1)
_stopped = threading.Event()


class Broken(Exception):
    """The product did not do what the demo shows."""


def play(demo: Callable[[Path], str]) -> int:
    """Run a demo in a folder of its own, which is removed, also after kill -9. Returns the exit status.

    demo: returns its verdict.
    """
    listen_for_stop()
    began = time.monotonic()
    # sockets need a short path, wherever this project lies
    folder = Path(tempfile.mkdtemp(prefix="nodedevice-demo-"))
    # what a client library puts aside (a CA file, say) is in there too: Ctrl-C can come between making and remembering it
    tempfile.tempdir = os.environ["TMPDIR"] = str(folder)
    try:
        with removed_at_the_end(folder):
            verdict = demo(folder)
    except (Broken, ClusterError, TimeoutError, ApiError) as exc:
        print(f"\nFAILED: {exc}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("\nstopped; everything that was started has ended", flush=True)
        return 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\nTo see every device on a page in your browser: make up, then kubectl nodedevice open")
    print(f"OK: {verdict} ({time.monotonic() - began:.0f} s)")
    return 0


def say(*lines: str) -> None:
    """In one piece, whichever thread prints beside this one."""
    print("".join(f"{line}\n" for line in lines), end="", flush=True)


def show_progress(line: str) -> None:
    say(f"  {line}")


def show(cluster: Cluster, *arguments: str) -> None:
    """A kubectl command as a person would type it, and its output."""
    say(f"  $ {shlex.join(['kubectl', *arguments])}")
    say(*(f"    {line}" for line in cluster.kubectl(*arguments).splitlines() or ["No resources found"]))


def show_typed(cluster: Cluster, command: str) -> None:
    """A command of the product, and its output. Raises Broken when it fails."""
    done = subprocess.run(
        ["sh", "-euc", command],
        check=False,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=shell_environment(cluster.admin_kubeconfig, cluster.folder),
    )
    say(f"  $ {command}", *(f"    {line}".rstrip() for line in (done.stdout + done.stderr).splitlines()))
    if done.returncode not in _WORKED:
        raise Broken(f"{command} ended with {done.returncode}")


def listen_for_stop() -> None:
    """From now on SIGINT, SIGTERM and SIGHUP raise KeyboardInterrupt, in the next step at the latest."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup wants it
        signal.signal(signal.SIGHUP, _stop)


def narrate(line: str) -> None:
    """Begin a step. Raises KeyboardInterrupt when it is not to begin any more."""
    if _stopped.is_set():
        raise KeyboardInterrupt
    say("", f"== {line}")


def _stop(number: int, frame: object) -> None:
    _stopped.set()
    raise KeyboardInterrupt
