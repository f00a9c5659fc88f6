"""A device plugin run as it is, although it insists on the kubelet's constant paths.

It gets a mount namespace of its own in which `/var/lib/kubelet/device-plugins` is the agent's plugin directory: what a
DaemonSet does with a hostPath. What else it writes (`/tmp`, CDI files in `/var/run/cdi`) stays inside, and ends with it.
Never touches the machine's own mounts.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

# The program is mounted, too: it may lie in a folder that is hidden by then, such as a cache below /tmp.
_SCRIPT = """
set -e
plugin_dir=$1 program=$2
shift 2
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
touch /var/lib/program
mount --bind "$plugin_dir" /var/lib/kubelet/device-plugins
mount --bind "$program" /var/lib/program
mount -t tmpfs none /var/run
mkdir /var/run/cdi
mount -t tmpfs none /tmp
exec /usr/bin/env "$@" /var/lib/program
"""


@cache
def unshare() -> tuple[str, ...]:
    """How to enter a mount namespace here; empty where that is not allowed."""
    program = shutil.which("unshare")
    if program is None:
        return ()
    command = (program, "--mount") if os.geteuid() == 0 else (program, "--mount", "--map-root-user")
    tried = subprocess.run([*command, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return command if tried.returncode == 0 else ()


def at_kubelet_path(program: Path, plugin_dir: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs a plugin against this plugin directory. environment: the plugin's own settings."""
    settings = [f"{key}={value}" for key, value in (environment or {}).items()]
    return [*unshare(), "/bin/sh", "-c", _SCRIPT, "sh", str(plugin_dir), str(program), *settings]


def inside(pid: int, path: Path) -> Path:
    """Where a path that this process sees in its namespace can be read from here."""
    return Path(f"/proc/{pid}/root{path}")
