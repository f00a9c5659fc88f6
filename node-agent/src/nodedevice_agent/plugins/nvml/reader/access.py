"""Explains why NVML fails or lists too few GPUs, from the driver's files in this process and on the node.

NVML's own errors say little: Unknown Error if the device cgroup denies its control file, DRIVER_NOT_LOADED if that file is
missing. NVML omits a GPU whose file is missing. It opens files in this process's own /dev; /proc is the kernel's.

Source: measured with driver 580 (docs/gpu.md); /proc/driver/nvidia of NVIDIA's open kernel modules.
"""

import errno
import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from msgspec import Struct

from nodedevice_agent.lib.filesystem import names_in

CONTROL: Final = "/dev/nvidiactl"
_PROC = "/proc/driver/nvidia"
_GIVE = "give the agent's container the driver's device files (chart: agents.runtimeClassName, or agents.privileged)"
_MAKE = "make it on the node (nvidia-modprobe -c MINOR -u, or nvidia-smi as root)"


class DriverFiles(Struct, frozen=True):
    """dev: this process's own root, in which NVML opens /dev/nvidia*. host: the root of the host's file tree."""

    dev: str = ""
    host: str = ""

    @property
    def is_loaded(self) -> bool:
        return os.path.exists(f"{self._proc}/version")

    @property
    def _proc(self) -> str:
        """The driver's directory: the kernel's is the same in each file tree that has /proc."""
        return next(filter(os.path.isdir, (f"{root}{_PROC}" for root in (self.host, self.dev))), _PROC)

    def problem_with(self, path: str) -> str:
        """Why this device file cannot be opened, with the remedy; "" if it can."""
        try:
            os.close(os.open(self.dev + path, os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return self._words(path, error)
        return ""

    def _words(self, path: str, error: OSError) -> str:
        if error.errno == errno.EPERM:
            return f"the device cgroup denies {path}: {_GIVE}"
        if error.errno == errno.EACCES:
            return f"its permissions deny {path} to user {os.geteuid()}: {_GIVE}"
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            is_on_host = self.host != self.dev and os.path.exists(self.host + path)
            return (
                f"{path} is missing here, and the host has it: {_GIVE}" if is_on_host else f"{path} is missing: {_MAKE}"
            )
        return f"{path} cannot be opened ({error.strerror}): see the kernel log"

    def unlisted(self, bus_ids: Collection[str]) -> list[str]:
        """A sentence for each GPU that the driver has and NVML does not list. bus_ids: of the listed GPUs, as in sysfs."""
        directory = f"{self._proc}/gpus"
        found = []
        for bus_id in sorted(names_in(directory)):
            about = _information(Path(directory, bus_id, "information"))
            if bus_id.lower() in bus_ids or about.get("GPU Excluded", "No") != "No":
                continue
            path = f"/dev/nvidia{about['Device Minor']}" if "Device Minor" in about else ""
            why = self.problem_with(path) if path else "its device file is unknown"
            found.append(
                f"the driver has the GPU at {bus_id.lower()} and NVML does not list it: {why or 'see the kernel log'}"
            )
        return found


def _information(path: Path) -> dict[str, str]:
    """The lines of a GPU's file, such as `Device Minor: 0`; empty if it cannot be read."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
