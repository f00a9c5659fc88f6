"""Starts the process that plays the agents of a fleet, and exchanges commands and responses with it."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from hack.bench.operator.generator import Command, Report
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import tied_to_us


class GeneratorProcess:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def ask(self, command: Command) -> Report:
        """Send a command, and wait until it is done. Raises EOFError if the process ended instead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(command) + b"\n")
        line = await self._process.stdout.readline()
        if not line:
            raise EOFError("the generator has ended; its output is above")
        return msgspec.json.decode(line, type=Report)


@asynccontextmanager
async def generator_process(control_plane: ControlPlane) -> AsyncIterator[GeneratorProcess]:
    command = [sys.executable, "-m", "hack.bench.operator.generator", str(control_plane.admin_kubeconfig)]
    process = await asyncio.create_subprocess_exec(
        *tied_to_us(command),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3],
        # a report of a minute of changes is one line
        limit=64 * 2**20,
    )
    try:
        yield GeneratorProcess(process)
    finally:
        process.kill()
        await process.wait()
