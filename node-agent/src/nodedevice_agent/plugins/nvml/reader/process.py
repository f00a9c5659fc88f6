"""The reader as a child process. A reader that is silent for too long is killed."""

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
    """The reader exited, was silent for too long, or sent an invalid message."""


class ReaderProcess:
    """One reader process. Always call end()."""

    def __init__(self, process: asyncio.subprocess.Process, silence_seconds: float) -> None:
        self._process = process
        self._silence_seconds = silence_seconds
        self._stderr = b""
        self._listening = asyncio.create_task(self._listen())

    @classmethod
    async def start(cls, options: ReaderOptions, library_dir: str, silence_seconds: float) -> "ReaderProcess":
        """Raises OSError."""
        environment = dict(os.environ)
        if library_dir:
            # the loader reads it only when the process starts
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
        """None once it has exited normally. Raises ReaderFailed."""
        output = self._process.stdout
        if output is None:
            raise ReaderFailed("no standard output")
        try:
            async with asyncio.timeout(self._silence_seconds):
                line = await output.readline()
        except TimeoutError:
            raise ReaderFailed(f"silent for {self._silence_seconds:g} s") from None
        except ValueError:
            raise ReaderFailed("message too long") from None
        if not line:
            await self._check_end()
            return None
        try:
            return decode(line)
        except msgspec.DecodeError as error:
            raise ReaderFailed(f"invalid message: {error}") from None

    async def _check_end(self) -> None:
        await self._process.wait()
        await asyncio.wait([self._listening])
        if self._process.returncode:
            raise ReaderFailed(f"exited with status {self._process.returncode}: {self._last_line()}")

    async def end(self) -> bool:
        """Kill it. Returns whether it has exited: one that hangs in the kernel exits only when its call returns."""
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
        """Wait for the exit of a process that end() could not kill."""
        await self._process.wait()

    def _last_line(self) -> str:
        text = self._stderr.decode(errors="replace").strip()
        return text.splitlines()[-1] if text else "no output on standard error"

    async def _listen(self) -> None:
        """Keep the end of its standard error, for crashes of ours or of the library; unread, it would block the process."""
        errors = self._process.stderr
        while errors is not None and (chunk := await errors.read(_SHOWN_BYTES)):
            self._stderr = (self._stderr + chunk)[-_SHOWN_BYTES:]
