"""Checks whether a real node can run on this machine, so that tests are skipped with a reason."""

import os
import shutil
import subprocess
import uuid
from functools import cache

from tests.cluster.node.cgroups import controllers

_CONTROLLERS = ("cpu", "cpuset", "devices", "memory", "pids")
_PROGRAMS = ("ip", "mount", "unshare")

# A mount namespace in which an overlay can be mounted, as the container runtime does for each container.
_TRIAL = """
set -e
folder=$(mktemp -d)
trap 'rmdir "$folder"' EXIT
mount -t overlay none -o lowerdir=/etc:/usr "$folder"
umount "$folder"
"""


@cache
def why_not_here() -> str:
    """The missing parts for a real node on this machine, in a few words; empty if complete."""
    if os.geteuid() != 0:
        return "a real node needs root: run as root"
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        return f"a real node needs the program {missing[0]}: install it"
    return _no_cgroups() or _refused()


def _no_cgroups() -> str:
    try:
        found = controllers()
    except OSError as exc:
        return f"a real node needs cgroups: {exc}"
    lacking = [name for name in _CONTROLLERS if name not in found]
    return f"a real node needs the cgroup controller {lacking[0]}: enable it in the kernel" if lacking else ""


def _refused() -> str:
    """Tries the node's operations on a small scale."""
    link = f"nd{uuid.uuid4().hex[:8]}"
    trials = {
        "namespaces and overlay mounts": ["unshare", "--mount", "--pid", "--fork", "sh", "-c", _TRIAL],
        "network bridges": ["ip", "link", "add", link, "type", "bridge"],
    }
    try:
        for what, command in trials.items():
            done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            if done.returncode != 0:
                return f"a real node needs {what}: {done.stderr.strip()}"
    finally:
        subprocess.run(["ip", "link", "delete", link], check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return ""
