"""Removes what a node leaves on the machine outside its own namespaces: its bridge and its cgroups.

Run as a script by its path: `python -I -S leftovers.py BRIDGE CGROUP`, when the node's processes have been killed; it
waits for the last of them. Does nothing if both are gone.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

_GIVE_UP_SECONDS = 10.0
_POLL_SECONDS = 0.05
_CGROUPS = "/sys/fs/cgroup"


def main() -> None:
    bridge, cgroup = sys.argv[1], sys.argv[2]
    if os.path.isdir(f"/sys/class/net/{bridge}"):
        subprocess.run(["ip", "link", "delete", bridge], check=False, stdin=subprocess.DEVNULL)
    remove_cgroups(cgroup)


def remove_cgroups(cgroup: str) -> None:
    """Remove a cgroup with all below it, from every hierarchy, once its last process is gone."""
    give_up = time.monotonic() + _GIVE_UP_SECONDS
    while not _are_removed(cgroup) and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)


def cgroup_roots() -> Iterator[str]:
    """Where cgroups are: one hierarchy (version 2), or one for each controller (version 1); a link is another's name."""
    if os.path.exists(f"{_CGROUPS}/cgroup.controllers"):
        yield _CGROUPS
        return
    for name in os.listdir(_CGROUPS):
        root = f"{_CGROUPS}/{name}"
        if os.path.exists(f"{root}/cgroup.procs") and not os.path.islink(root):
            yield root


def _are_removed(cgroup: str) -> bool:
    removed = True
    for root in cgroup_roots():
        for folder, _, _ in os.walk(f"{root}/{cgroup}", topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                removed = False
    return removed


if __name__ == "__main__":
    main()
