"""The checkpoint on disk: read once, written in the background by one writer, whole or not at all.

Many changes become one write; temp file, fsync, rename, fsync of the folder, off the event loop.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from nodedevice_agent.core.checkpoint import Checkpoint, CheckpointCorrupt, Encoder, decode
from nodedevice_agent.edges import metrics

log = logging.getLogger(__name__)

FILE_NAME = "checkpoint.json"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_RETRY_SECONDS = 1.0


def read(state_dir: Path) -> Checkpoint | None:
    """What stands on disk; None where there is no file. Raises CheckpointCorrupt, also for a file that cannot be read."""
    try:
        return decode((state_dir / FILE_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        raise CheckpointCorrupt(str(exc)) from exc


def set_aside(state_dir: Path) -> Path:
    """Keep an unreadable file for whoever looks into it, under a name of its own. Returns where it is now."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = state_dir / f"{FILE_NAME}.unreadable-{stamp}"
    os.replace(state_dir / FILE_NAME, aside)
    return aside


class CheckpointWriter:
    """Writes what `current` returns whenever it was asked to, one write at a time."""

    def __init__(self, state_dir: Path, current: Callable[[], Checkpoint]) -> None:
        self._state_dir = state_dir
        self._current = current
        self._wanted = 0
        self._written = 0
        self._wake = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self._encoder = Encoder()
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""
        self.is_failing = False

    def request(self) -> int:
        """Ask for a write of the state as it is now or later. Returns a number for flushed()."""
        self._wanted += 1
        self._wake.set()
        return self._wanted

    async def flushed(self, number: int) -> None:
        """Wait until the state at that request is on disk."""
        while self._written < number:
            # a future each, and no condition: whoever waits is told in the same turn of the loop
            written = asyncio.get_running_loop().create_future()
            self._waiting.append(written)
            await written

    async def run(self) -> None:
        """Write until cancelled; what was still asked for then is written by close()."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._written < self._wanted:
                await self._write_once()

    async def close(self) -> None:
        """The last write, if one is owed."""
        if self._written < self._wanted:
            await self._write_once()

    async def _write_once(self) -> None:
        number = self._wanted
        loop = asyncio.get_running_loop()
        checkpoint = replace(self._current(), boot_id=self._boot_id)
        try:
            with metrics.CHECKPOINT_SECONDS.time():
                await _finished(loop.run_in_executor(None, self._encode_and_write, checkpoint))
        except OSError as exc:
            if not self.is_failing:
                log.error(
                    "checkpoint cannot be written; trying again, and nothing new is published until it is",
                    extra={"directory": str(self._state_dir), "error": exc.strerror},
                )
            self.is_failing = True
            await asyncio.sleep(_RETRY_SECONDS)
            return
        self.is_failing = False
        self._written = number
        waiting, self._waiting = self._waiting, []
        for written in waiting:
            if not written.done():
                written.set_result(None)

    def _encode_and_write(self, checkpoint: Checkpoint) -> None:
        """In a thread, one at a time."""
        write(self._state_dir / FILE_NAME, self._encoder.encode(checkpoint))


async def _finished(writing: asyncio.Future[None]) -> None:
    """Wait until it is done, also when cancelled: a thread cannot be stopped, and two would share one temporary file."""
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait([writing])
        # what went wrong is said when close() fails in the same way
        writing.exception()
        raise


def write(path: Path, text: str) -> None:
    """Replace the file durably: whoever reads it finds the old text or the new one. Raises OSError."""
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode("utf-8"))
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
