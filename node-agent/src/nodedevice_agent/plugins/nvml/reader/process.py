"""The reader as a child process: started, listened to, and ended. A reader that is silent for too long is ended too."""

import asyncio
import os
import sys
from contextlib import suppress

import msgspec

from nodedevice_agent.plugins.nvml.reader.messages import Message, ReaderOptions, decode

_MODULE = "nodedevice_agent.plugins.nvml.reader"
# sixteen GPUs with all their links are some 20 KiB
_MAX_LINE_BYTES = 4 * 1024 * 1024
_SHOWN_BYTES = 2000
_KILL_SECONDS = 5.0


class ReaderFailed(Exception):
    """The reader ended by itself, was silent for too long, or said something that is no message."""


class ReaderProcess:
    """One start of the reader. Call end() in any case."""

    def __init__(self, process: asyncio.subprocess.Process, silence_seconds: float) -> None:
        self._process = process
        self._silence_seconds = silence_seconds
        self._said = b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, options: ReaderOptions, library_dir: str, silence_seconds: float) -> "ReaderProcess":
        """Raises OSError."""
        environment = dict(os.environ)
        if library_dir:
            # read by the loader when the process starts; setting it in a running one changes nothing
            others = environment.get("LD_LIBRARY_PATH", "")
            environment["LD_LIBRARY_PATH"] = f"{library_dir}:{others}" if others else library_dir
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            msgspec.json.encode(options).decode(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment,
            limit=_MAX_LINE_BYTES,
        )
        return cls(process, silence_seconds)

    async def next_message(self) -> Message | None:
        """None once it has ended in order. Raises ReaderFailed."""
        output = self._process.stdout
        if output is None:
            raise ReaderFailed("it has no output")
        try:
            async with asyncio.timeout(self._silence_seconds):
                line = await output.readline()
        except TimeoutError:
            raise ReaderFailed(f"it has said nothing for {self._silence_seconds:g} s") from None
        except ValueError:
            raise ReaderFailed("it said more than any reader has to say") from None
        if not line:
            await self._check_end()
            return None
        try:
            return decode(line)
        except msgspec.DecodeError as error:
            raise ReaderFailed(f"it said what is no message: {error}") from None

    async def _check_end(self) -> None:
        await self._process.wait()
        await asyncio.wait([self._listening])
        if self._process.returncode:
            raise ReaderFailed(f"it ended with status {self._process.returncode}: {self._last_words()}")

    async def end(self) -> bool:
        """Whether it has ended; one that hangs in the kernel ends only when its call does, however it is killed."""
        with suppress(ProcessLookupError):
            self._process.kill()
        try:
            async with asyncio.timeout(_KILL_SECONDS):
                await self._process.wait()
        except TimeoutError:
            return False
        finally:
            self._listening.cancel()
        return True

    async def ended(self) -> None:
        """Wait for one that end() could not end."""
        await self._process.wait()

    def _last_words(self) -> str:
        text = self._said.decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "without a word"

    async def _listen(self) -> None:
        """What it writes to standard error: a crash of ours or of the library's. Read always, or it would block."""
        errors = self._process.stderr
        while errors is not None and (chunk := await errors.read(_SHOWN_BYTES)):
            self._said = (self._said + chunk)[-_SHOWN_BYTES:]
