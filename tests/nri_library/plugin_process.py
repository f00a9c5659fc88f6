"""The agent's NRI plugin in a process of its own, with a handler that gives each container /dev/null.

    python -m tests.nri_library.plugin_process SOCKET [WHERE HOW]

WHERE: synchronized, create_container, validate or responded, the moment after the response to CreateContainer. HOW: `stop`, as a
process that hangs, or `kill`.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from nodedevice_agent.devicemanager.container_edits import ContainerEdits, DeviceFile
from nodedevice_agent.devicemanager.runtime import CreationSettings, RunningContainer, RuntimeHandler, Sandbox
from nodedevice_agent.nri.connector import NriPlugin

EDITS = ContainerEdits(devices=(DeviceFile("/dev/null", "/dev/null", "rw"),))


class GivingHandler(RuntimeHandler):
    """Fails at one place, as the command line says."""

    def __init__(self, where: str, how: str) -> None:
        self._where = where
        self._signal = signal.SIGKILL if how == "kill" else signal.SIGSTOP

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        self._at("create_container")
        return EDITS

    async def creation_settings(self, sandbox: Sandbox, container: RunningContainer) -> CreationSettings:
        # the response is sent in this turn of the event loop
        asyncio.get_running_loop().call_soon(self._at, "responded")
        return CreationSettings()

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        self._at("synchronized")

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._at("validate")

    def _at(self, where: str) -> None:
        if where == self._where:
            # once: when it runs again, it works
            self._where = ""
            os.kill(os.getpid(), self._signal)


def main(socket: str, where: str = "", how: str = "") -> None:
    asyncio.run(NriPlugin(GivingHandler(where, how), Path(socket), "10").run())


if __name__ == "__main__":
    main(*sys.argv[1:])
