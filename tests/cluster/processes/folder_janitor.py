"""Waits until the starter has ended, then removes its folder: this cleanup also happens after kill -9.

Run as a script by its path: `python -I -S folder_janitor.py STARTER_PID FOLDER [COMMAND...]`, in a session of its own
so that Ctrl-C does not reach it. A starter that ends gracefully terminates the janitor first and removes the folder
itself. COMMAND cleans up elsewhere; it runs before the folder is removed.
"""

import os
import select
import shutil
import subprocess
import sys
import time

_GIVE_UP_SECONDS = 10.0


def main() -> None:
    starter, folder, first = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    try:
        watched = os.pidfd_open(starter)
    except ProcessLookupError:
        watched = -1
    # the pid may have been reused: then this process has another parent
    if watched >= 0 and os.getppid() == starter:
        select.select([watched], [], [])
    if first:
        subprocess.run(first, check=False)
    # Its processes get SIGKILL at the same time, but may still write until they have ended.
    give_up = time.monotonic() + _GIVE_UP_SECONDS
    while os.path.isdir(folder) and time.monotonic() < give_up:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
