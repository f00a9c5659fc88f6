"""Decides whether the plugin keeps NVIDIA's driver closed, so that the driver can be replaced while the agent runs.

Two requests count: the Node's label with which the GPU Operator removes clients of the driver, and a file that the command `gpu
release` writes to `<state-dir>/gpus/released`. The file counts until `gpu resume`, or until the node reboots. If the file exists
and no process of the plugin has NVML open, the agent writes `<state-dir>/gpus/closed`, for which the command waits.

Source: gpu-operator controllers/state_manager.go @ 26.7 sets the label to true; k8s-driver-manager cmd/driver-manager @ 0.12
makes paused-for-driver-upgrade of true, and x_paused-for-driver-upgrade of x, but leaves an empty value and false; mig-parted @
0.15 makes paused-for-mig-change. A client with the node selector true runs with no other value.
"""

import asyncio
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from nodedevice_agent.lib import filesystem, own_command
from nodedevice_agent.lib.deviceplugin_server.values import NodeLabels
from nodedevice_agent.plugins.nvml.boot_memory import gpu_dir
from nodedevice_agent.plugins.nvml.settings import GPU_CLIENT_LABEL

log = logging.getLogger(__name__)

# no label: no GPU Operator, or an older one; an empty one: k8s-driver-manager writes it in place of none
_CLIENTS_RUN: Final = ("", "true")
# a boot's ID and a line end
_MOST_BYTES: Final = 64
_POLL_SECONDS: Final = 1.0


def released_by_label(value: str) -> str:
    """Why NVML stays closed by this value of the label ("" without one), with the remedy; "" if clients may run."""
    if value in _CLIENTS_RUN:
        return ""
    return (
        f"the Node has the label {GPU_CLIENT_LABEL}={ascii(value)[1:-1]}, with which the GPU Operator removes programs that use "
        f"the driver; it is read again when the value is true, or without the label (kubectl label node NODE {GPU_CLIENT_LABEL}-)"
    )


class DriverRelease:
    """The requests of one node. message: why NVML has to be closed, in words; empty while it may be open."""

    def __init__(self, state_dir: Path, labels: NodeLabels | None = None) -> None:
        self._state_dir = state_dir
        self._labels = labels or NodeLabels()
        self._changed = asyncio.Event()
        self.message = self._requested()

    async def follow(self) -> None:
        """Keep `message` current, until cancelled. The label counts at once, the file within a second."""
        self._labels.subscribe(self._refresh)
        try:
            while True:
                self._refresh()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            self._labels.unsubscribe(self._refresh)

    async def changed(self) -> None:
        """Wait until the message is another one."""
        self._changed.clear()
        await self._changed.wait()

    async def requested(self) -> None:
        """Wait until the driver has to be closed."""
        while not self.message:
            await self.changed()

    def opening(self) -> None:
        """NVML may be open from now on."""
        with suppress(OSError):
            closed_file(self._state_dir).unlink(missing_ok=True)

    def closed(self) -> None:
        """No process of the plugin has NVML open, and none opens it as long as there is a message."""
        file = closed_file(self._state_dir)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        except OSError as error:
            log.error("cannot confirm that NVML is closed", extra={"path": str(file), "error": str(error)})

    def _refresh(self) -> None:
        before, self.message = self.message, self._requested()
        if self.message != before:
            self._changed.set()

    def _requested(self) -> str:
        by_label = released_by_label(self._labels.latest.get(GPU_CLIENT_LABEL, ""))
        if not is_requested(self._state_dir):
            return by_label
        resume = f"{own_command.typed()} gpu resume"
        by_command = f"an administrator released NVIDIA's driver; when it is loaded again, run: {resume}"
        return f"{by_command}; {by_label}" if by_label else by_command


def request_file(state_dir: Path) -> Path:
    return gpu_dir(state_dir) / "released"


def closed_file(state_dir: Path) -> Path:
    return gpu_dir(state_dir) / "closed"


def is_requested(state_dir: Path) -> bool:
    """Whether a command has released the driver since the node booted."""
    with suppress(OSError), request_file(state_dir).open("rb") as file:
        return file.read(_MOST_BYTES).decode(errors="replace").strip() == filesystem.boot_id()
    return False


def request(state_dir: Path) -> None:
    """Release the driver. Raises OSError."""
    folder = gpu_dir(state_dir)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_requested(state_dir):
        closed_file(state_dir).unlink(missing_ok=True)
        filesystem.replace_durably(request_file(state_dir), f"{filesystem.boot_id()}\n")


def withdraw(state_dir: Path) -> bool:
    """Let the agent open the driver again. Returns whether a command had released it. Raises OSError."""
    was_requested = is_requested(state_dir)
    request_file(state_dir).unlink(missing_ok=True)
    return was_requested
