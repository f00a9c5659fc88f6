"""The fake third-party plugin as a process, as tests of the agent rely on it: registers anew, can be killed or asked to end."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from tests.fakes.device_manager import Manager

ROOT = Path(__file__).parents[2]
RESOURCE = "example.com/fake"


@contextlib.asynccontextmanager
async def fake_process(plugin_dir: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = ["-m", "tests.fakes.plugin", "--plugin-dir", str(plugin_dir), "--resource", RESOURCE, "--count", "2"]
    environment = {**os.environ, "GRPC_VERBOSITY": "ERROR"}
    process = await asyncio.create_subprocess_exec(sys.executable, *command, cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_registers_anew_after_a_wipe_and_leaves_its_socket_when_killed(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    async with fake_process(tmp_path) as process:
        await manager.start()
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        await manager.stop()
        manager.wipe()
        manager.lists.clear()
        await manager.start()
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert (tmp_path / manager.registrations[-1].endpoint).is_socket()
    await manager.stop()


async def test_ends_cleanly_when_asked(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    await manager.start()
    async with fake_process(tmp_path) as process:
        await manager.until_listed(RESOURCE, ["dev-0", "dev-1"])
        process.terminate()
        assert await process.wait() == 0
        assert not (tmp_path / manager.registrations[-1].endpoint).exists()
    await manager.stop()
