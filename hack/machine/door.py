"""Opens a shell of a machine, from its own network: `python -m hack.machine.door [COMMAND...]`."""

import os
import select
import socket
import sys
import termios
import tty

from hack.machine.guest import DOOR_PORT
from hack.machine.virtual_machine import run_inside
from tests.cluster.errors import CommandError

ADDRESS = "10.77.0.11"


def main() -> int:
    if len(sys.argv) > 1:
        try:
            print(run_inside(ADDRESS, " ".join(sys.argv[1:])))
        except CommandError as error:
            print(error.stdout or error, file=sys.stderr)
            return error.exit_status
        return 0
    with socket.create_connection((ADDRESS, DOOR_PORT)) as door:
        # the machine's shell has no terminal; script creates one
        door.sendall(b"exec script -qfc 'TERM=xterm bash -i' /dev/null\n")
        _talk(door)
    return 0


def _talk(door: socket.socket) -> None:
    """Pass the terminal through until the shell ends."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal) if os.isatty(terminal) else None
    if before is not None:
        tty.setraw(terminal)
    sources: list[int | socket.socket] = [terminal, door]
    try:
        while True:
            ready = select.select(sources, [], [])[0]
            if terminal in ready:
                data = os.read(terminal, 4096)
                door.sendall(data)
                if not data:
                    sources.remove(terminal)
            if door in ready:
                data = door.recv(65536)
                if not data:
                    return
                os.write(sys.stdout.fileno(), data)
    finally:
        if before is not None:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


if __name__ == "__main__":
    sys.exit(main())
