"""Nodes for crash tests: the real agent and device plugins, each as a process that can be killed."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from inotify_simple import INotify, flags
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import agent_program
from tests.cluster.processes.loopback import fetch
from tests.cluster.processes.processes import Process

# Resource name to number of devices.
RESOURCES = {"example.com/gpu": 8, "example.com/nic": 6}
_POLL_SECONDS = 0.05


class KilledNode:
    """folder: of this node alone, with a path short enough for sockets. port: of the agent's HTTP server.

    plugins: their processes.
    """

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, port: int) -> None:
        self.name = name
        self.state_dir, self.plugin_dir = folder / "state", folder / "plugins"
        for directory in (self.state_dir, self.plugin_dir):
            directory.mkdir(parents=True)
        # with damping, nearly all of these devices would soon be unhealthy, and nothing would be allocated
        program = agent_program(control_plane, folder, name, port, stateDir=str(self.state_dir), flappingChanges=0)
        self.agent, self._address = program.process, program.address
        self.plugins: list[Process] = []

    def start(self) -> None:
        for process in (*self.plugins, self.agent):
            process.start()

    def end(self) -> None:
        for process in (self.agent, *self.plugins):
            process.kill()

    def kill(self, process: Process) -> None:
        """kill -9. Raises ComponentError when it had ended by itself, which is the failure then."""
        process.verify_alive()
        process.kill()

    def checkpoint(self) -> Checkpoint | None:
        """The checkpoint on disk. Raises CheckpointCorrupt."""
        return checkpoint_file.read(self.state_dir)

    async def until_metrics(self, wanted: Sequence[str], timeout_seconds: float) -> None:
        """Wait until the agent's metrics have all of this. Raises TimeoutError, and ComponentError when a process ends instead."""
        async with asyncio.timeout(timeout_seconds):
            while True:
                page = await asyncio.to_thread(self._metrics)
                if all(part in page for part in wanted):
                    return
                for process in (self.agent, *self.plugins):
                    process.verify_alive()
                await asyncio.sleep(_POLL_SECONDS)

    def _metrics(self) -> str:
        try:
            return fetch(f"http://{self._address}/metrics")[1]
        except OSError:
            return ""


class CrashNode(KilledNode):
    """With two plugins whose devices flap."""

    def __init__(self, control_plane: ControlPlane, name: str, folder: Path, port: int, seed: int) -> None:
        super().__init__(control_plane, name, folder, port)
        self.plugins = [
            Process(f"plugin of {name}", _plugin(self.plugin_dir, name, count, seed), folder / f"plugin-{index}.log")
            for index, (name, count) in enumerate(RESOURCES.items())
        ]

    def kill_at_file_event(self, number: int, timeout_seconds: float) -> None:
        """kill -9 at step `number` of saving: a line written to the journal; a file created, written, closed, renamed.

        Blocks. If too little is written before the timeout, it is killed then.
        """
        self.agent.verify_alive()
        pid = self.agent.pid
        deadline = time.monotonic() + timeout_seconds
        with INotify() as inotify:
            inotify.add_watch(self.state_dir, flags.CREATE | flags.MODIFY | flags.CLOSE_WRITE | flags.MOVED_TO)
            seen = 0
            while seen < number and (left := deadline - time.monotonic()) > 0:
                seen += len(inotify.read(timeout=int(left * 1000) + 1))
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
        self.agent.kill()

    def replace_plugin(self, number: int) -> None:
        """kill -9 a plugin and start it again, as happens to both when a node's containers are restarted."""
        self.kill(self.plugins[number])
        self.plugins[number].start()

    def has_journal_only_changes(self, checkpoint: Checkpoint | None) -> bool:
        """checkpoint: with its journal."""
        if checkpoint is None:
            return False
        return decode((self.state_dir / checkpoint_file.FILE_NAME).read_bytes()).journal != checkpoint.journal

    async def until_ready(self, timeout_seconds: float = 60.0) -> None:
        """Wait until the agent knows its pods and the devices of every resource. Raises as until_metrics."""
        await self.until_metrics([f'resource_name="{name}",state="total"' for name in RESOURCES], timeout_seconds)

    def stop_flapping(self) -> None:
        """From now on every device is healthy."""
        for plugin in self.plugins:
            plugin.verify_alive()
            assert plugin.pid is not None
            os.kill(plugin.pid, signal.SIGUSR1)


def _plugin(plugin_dir: Path, resource: str, count: int, seed: int) -> list[str]:
    module = "tests.robustness.crash.flapping_plugin"
    return [sys.executable, "-m", module, str(plugin_dir), resource, str(count), str(seed)]
