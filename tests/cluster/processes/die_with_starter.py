"""Becomes another program that the kernel kills when its starter ends for any reason.

Run as a script by its path: `python -I -S die_with_starter.py STARTER_PID PROGRAM ARGUMENT...`. A step of its own, not a
`preexec_fn`, because tests are full of threads and Python code between fork and exec can then deadlock.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h; kept over execve, cleared on fork


def main() -> None:
    starter, program = int(sys.argv[1]), sys.argv[2]
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != starter:
        sys.exit("the starter was gone before its program could be tied to it")
    try:
        os.execv(program, sys.argv[2:])
    except OSError as exc:
        sys.exit(f"{program}: {exc.strerror}")


if __name__ == "__main__":
    main()
