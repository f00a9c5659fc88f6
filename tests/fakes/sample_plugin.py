"""Kubernetes' own sample device plugin, built from the pinned module and run as it is.

It finds the device manager only at the kubelet's constant path, so it gets a mount namespace of its own in which that path
is the agent's plugin directory: what a DaemonSet does with a hostPath.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.cluster.binaries import find

RESOURCE = "example.com/resource"
DEVICES = ("Dev-1", "Dev-2")

_SCRIPT = """
set -e
mount -t tmpfs none /var/lib
mkdir -p /var/lib/kubelet/device-plugins
mount --bind "$1" /var/lib/kubelet/device-plugins
shift
exec "$@"
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


def command(plugin_dir: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The command line that runs it against this plugin directory. environment: the plugin's own settings (CDI_ENABLED)."""
    plugin = str(find(["sample-device-plugin"])["sample-device-plugin"])
    settings = [f"{key}={value}" for key, value in (environment or {}).items()]
    return [*unshare(), "/bin/sh", "-c", _SCRIPT, "sh", str(plugin_dir), "/usr/bin/env", *settings, plugin]
