"""What outlives a restart of the agent: GPUs that were seen since the node booted, and which of them have to be reset.

`<state-dir>/gpus/remembered.json`. A boot resets every GPU, so what another boot wrote is forgotten. Also the place where the `gpu`
command leaves word: a file named after the UUID in `<state-dir>/gpus/clear/`.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct, field

from nodedevice_agent.plugins.nvml.fleet import Remembered

log = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES = 1024 * 1024


class MemoryUnreadable(Exception):
    """The file is not what an agent writes; the text names it."""


class MemoryDamaged(MemoryUnreadable):
    """It can be opened, and its content makes no sense."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = path


class _File(Struct):
    boot_id: str
    gpus: list[Remembered] = field(default_factory=list)


def gpu_dir(state_dir: Path) -> Path:
    return state_dir / "gpus"


def clear_dir(state_dir: Path) -> Path:
    return gpu_dir(state_dir) / "clear"


def read(state_dir: Path) -> tuple[Remembered, ...]:
    """What this boot remembers. Raises MemoryUnreadable."""
    path = gpu_dir(state_dir) / "remembered.json"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES)
        found = msgspec.json.decode(content, type=_File)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except OSError as error:
        raise MemoryUnreadable(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MemoryDamaged(path, str(error)) from error
    odd = [known.gpu.uuid for known in found.gpus if not known.gpu.is_plausible]
    if odd:
        raise MemoryDamaged(path, f"there is no GPU like {odd[0][:128]!r}")
    return tuple(found.gpus) if found.boot_id == _boot_id() else ()


class Memory:
    """Writes only what is new. Trouble with the file is told once and harms nothing but the next start."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._written: tuple[Remembered, ...] | None = None
        self._said = ""

    def read(self) -> tuple[Remembered, ...]:
        """What is written, or nothing where that cannot be read; a damaged file is kept aside."""
        try:
            self._written = read(self._state_dir)
        except MemoryDamaged as error:
            self._say("which GPUs have to be reset is forgotten: the file is damaged", str(error))
            with suppress(OSError):
                error.path.replace(error.path.with_name(f"{error.path.name}.unreadable"))
            return ()
        except MemoryUnreadable as error:
            self._say("which GPUs have to be reset is forgotten: the file cannot be read", str(error))
            return ()
        return self._written

    def write(self, remembered: tuple[Remembered, ...]) -> None:
        """Replace the file in one step, if that changes it."""
        if remembered == self._written:
            return
        folder = gpu_dir(self._state_dir)
        temporary = folder / f".remembered.json.{os.getpid()}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(msgspec.json.encode(_File(_boot_id(), list(remembered))))
            temporary.replace(folder / "remembered.json")
        except OSError as error:
            self._say("GPUs that have to be reset cannot be written down", str(error))
            return
        self._written, self._said = remembered, ""

    def _say(self, event: str, error: str) -> None:
        if error != self._said:
            log.error(event, extra={"error": error})
        self._said = error


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


log = logging.getLogger(__name__)


class Clears:
    """folder: see memory.clear_dir."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # what could not be taken away, as was said
        self._refused: set[str] = set()

    def take(self) -> list[str]:
        """The UUIDs, each once. What cannot be taken away counts for nothing, or it would count again and again."""
        try:
            left = sorted(path for path in self.folder.iterdir() if not path.name.startswith("."))
        except OSError:
            return []
        refused = {path.name for path in left if not self._take_away(path)}
        self._refused = refused
        return [path.name for path in left if path.name not in refused]

    def _take_away(self, path: Path) -> bool:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            if path.name not in self._refused:
                log.error("GPU is not cleared: remove this by hand", extra={"path": str(path), "error": str(error)})
            return False
        return True
