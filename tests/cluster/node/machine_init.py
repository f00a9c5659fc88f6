"""Process 1 of a machine of its own: a PID and a mount namespace in which a node lives, and with which all of it dies.

Run as a script by its path: `python -I -S machine_init.py FOLDER BOOT_ID`. FOLDER holds what the machine calls /run, /var/lib
and /var/log, and gets the file `init.pid`, with its process ID outside, when programs may be started.
Killing either this script or its child ends every process of the machine, shims and containers too, and with the last its
mounts.
"""

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000  # linux/sched.h
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    folder, boot_id = Path(sys.argv[1]), sys.argv[2]
    if _libc.unshare(_CLONE_NEWNS | _CLONE_NEWPID) != 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    is_set_up, set_up = os.pipe()
    init = os.fork()
    if init == 0:
        _be_init(folder, boot_id, set_up)
    os.close(set_up)
    if os.read(is_set_up, 1):
        written = folder / ".init.pid"
        written.write_text(str(init))
        written.rename(folder / "init.pid")
    _, status = os.waitpid(init, 0)
    sys.exit(os.waitstatus_to_exitcode(status) and 1)


def _be_init(folder: Path, boot_id: str, set_up: int) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    # the kernel ends the namespace with its process 1
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        _mount_all(folder, boot_id)
    except (OSError, subprocess.CalledProcessError) as exc:
        print(exc, file=sys.stderr, flush=True)
        os._exit(1)
    os.write(set_up, b"1")
    os.close(set_up)
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _reap() -> None:
    """Reap orphans of every program: process 1 inherits them."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def _mount_all(folder: Path, boot_id: str) -> None:
    # invisible outside; inside, mounts are shared, as a kubelet expects its root to be
    _mount("--make-rprivate", "/")
    _mount("--make-rshared", "/")
    _mount("-t", "proc", "proc", "/proc")
    (folder / "boot_id").write_text(f"{boot_id}\n")
    _mount("--bind", str(folder / "boot_id"), _BOOT_ID)
    for inside in ("/var/lib", "/var/log", "/run"):
        _mount("--bind", str(folder / inside.strip("/").replace("/", "-")), inside)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, stdin=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
