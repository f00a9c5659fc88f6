"""Runs a program inside a machine, as a child that dies with this script.

Run as a script by its path: `python -I -S enter_machine.py INIT_PID PROGRAM ARGUMENT...`. SIGTERM is passed on; the exit
status is the program's. For other signals, find the program as the only child of this process.
"""

import ctypes
import os
import signal
import sys

_CLONE_NEWNS, _CLONE_NEWPID = 0x20000, 0x20000000  # linux/sched.h
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    init, command = sys.argv[1], sys.argv[2:]
    try:
        namespaces = [(os.open(f"/proc/{init}/ns/{kind}", os.O_RDONLY), flag) for kind, flag in _KINDS]
    except FileNotFoundError:
        sys.exit("the machine is off")
    for descriptor, flag in namespaces:
        if _libc.setns(descriptor, flag) != 0:
            sys.exit(f"setns: {os.strerror(ctypes.get_errno())}")
        os.close(descriptor)
    program = os.fork()
    if program == 0:
        _become(command)
    signal.signal(signal.SIGTERM, lambda number, _: os.kill(program, number))
    _, status = os.waitpid(program, 0)
    code = os.waitstatus_to_exitcode(status)
    sys.exit(code if code >= 0 else 128 - code)


# the PID namespace first: it applies to children only, so this script stays outside
_KINDS = (("pid", _CLONE_NEWPID), ("mnt", _CLONE_NEWNS))


def _become(command: list[str]) -> None:
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        os.execv(command[0], command)
    except OSError as exc:
        print(f"{command[0]}: {exc.strerror}", file=sys.stderr, flush=True)
        os._exit(127)


if __name__ == "__main__":
    main()
