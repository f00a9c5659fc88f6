"""State that survives a restart of the agent: the GPUs seen since the node booted, and which of them need a reset.

`<state-dir>/gpus/remembered.json`. A boot resets every GPU, so the file of another boot is ignored. The command `gpu clear`
leaves its requests in the same folder: a file named after the UUID in `<state-dir>/gpus/clear/`.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field
from nodedevice_common.decoding import Undecodable, decode
from nodedevice_common.log_once import LogOnce

from nodedevice_agent.lib import filesystem
from nodedevice_agent.plugins.contract import CommandFailed
from nodedevice_agent.plugins.nvml.node_gpus import Remembered

log = logging.getLogger(__name__)

_MAX_BYTES = 1024 * 1024
_UNSAVED = "cannot save which GPUs need a reset"
_UNREMOVED = "cannot remove the clear request; remove the file by hand"


class MemoryUnreadable(CommandFailed):
    """The file cannot be read; the text names it."""


class MemoryCorrupt(MemoryUnreadable):
    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class _RememberedFile(Struct):
    boot_id: str
    gpus: list[Remembered] = field(default_factory=list)


def gpu_dir(state_dir: Path) -> Path:
    return state_dir / "gpus"


def clear_dir(state_dir: Path) -> Path:
    return gpu_dir(state_dir) / "clear"


def read(state_dir: Path) -> tuple[Remembered, ...]:
    """The GPUs remembered since this boot. Raises MemoryUnreadable."""
    path = gpu_dir(state_dir) / "remembered.json"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
        remembered = decode(content, _RememberedFile)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise MemoryUnreadable(f"{path}: {error.strerror}") from error
    except Undecodable as error:
        raise MemoryCorrupt(path, str(error)) from error
    for gpu in (each.gpu for each in remembered.gpus):
        if not gpu.is_plausible:
            raise MemoryCorrupt(path, f"implausible GPU {gpu.uuid[:128]!r}")
    return tuple(remembered.gpus) if remembered.boot_id == filesystem.boot_id() else ()


class Memory:
    """Writes only changes. A problem with the file is logged once, and matters only at the next start."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._written: tuple[Remembered, ...] | None = None
        self._problems = LogOnce(log)
        self.clear_dir = clear_dir(state_dir)

    def read(self) -> tuple[Remembered, ...]:
        """The content of the file, or nothing when it cannot be read; a corrupt file is renamed and kept."""
        try:
            self._written = read(self._state_dir)
        except MemoryCorrupt as error:
            log.error("GPU state file is corrupt; forgetting which GPUs need a reset", extra={"error": str(error)})
            with suppress(OSError):
                error.path.replace(error.path.with_name(f"{error.path.name}.unreadable"))
            return ()
        except MemoryUnreadable as error:
            log.error("GPU state file is unreadable; forgetting which GPUs need a reset", extra={"error": str(error)})
            return ()
        return self._written

    def write(self, remembered: tuple[Remembered, ...]) -> None:
        """Replace the file atomically, if it changes."""
        if remembered == self._written:
            return
        folder = gpu_dir(self._state_dir)
        temporary = folder / f".remembered.json.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(_RememberedFile(filesystem.boot_id(), list(remembered))))
            temporary.replace(folder / "remembered.json")
        except OSError as error:
            self._problems.report(_UNSAVED, str(error), logging.ERROR)
            return
        self._problems.report(_UNSAVED, "")
        self._written = remembered

    def take_clears(self) -> list[str]:
        """UUIDs of GPUs to clear, each once. Ignores a file that cannot be removed: it would clear the GPU again and again."""
        try:
            left = sorted(path for path in self.clear_dir.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        taken, problem = [], ""
        for path in left:
            try:
                path.unlink(missing_ok=True)
                taken.append(path.name)
            except OSError as error:
                problem = problem or str(error)
        self._problems.report(_UNREMOVED, problem, logging.ERROR)
        return taken
