"""Which GPUs the node's CDI specifications name, by UUID: what handOver auto rests on.

They are read in a thread, with bounds: the files are on a disk.
"""

import asyncio
import logging
from collections.abc import Mapping
from pathlib import Path

from nodedevice_common.threads import in_thread

from nodedevice_agent.lib.cdi_files import CdiFiles, devices_of, directories_at, read_files
from nodedevice_agent.plugins.nvml.environment import VISIBLE_DEVICES, VOID

log = logging.getLogger(__name__)

_VOID = f"{VISIBLE_DEVICES}={VOID}"


class CdiSpecs:
    """names: of the devices of one kind, as they were read last, empty before that; and whether a container with it has no GPUs of
    NVIDIA's container runtime besides, as nvidia-ctk writes it: its edits come after those of NRI and replace the pod's variable.
    """

    def __init__(self, host_root: str, kind: str) -> None:
        self.directories = directories_at(host_root)
        self.names: Mapping[str, bool] = {}
        self._kind = kind
        self._read: CdiFiles = {}
        self._problems: frozenset[str] = frozenset()
        # one at a time: a disk that hangs costs one thread
        self._reading: asyncio.Task[None] | None = None

    async def refresh(self) -> bool:
        """Read what has changed. Returns whether names are others than before."""
        before = self.names
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._refresh())
        await asyncio.shield(self._reading)
        return self.names != before

    async def _refresh(self) -> None:
        known = self._read
        self.names, self._read, problems = await in_thread(lambda: _all(self.directories, self._kind, known))
        for problem in sorted(problems - self._problems):
            log.warning("CDI specification cannot be read", extra={"error": problem})
        self._problems = problems


def _all(
    directories: tuple[Path, ...], kind: str, known: CdiFiles
) -> tuple[Mapping[str, bool], CdiFiles, frozenset[str]]:
    """The names, what each file has, and what cannot be read."""
    files, problems = read_files(directories, known, first=[kind.partition("/")[0]])
    found = {
        name: _VOID in (*file.edits.env, *device.container_edits.env)
        for (of_kind, name), (file, device) in devices_of(files).items()
        if of_kind == kind
    }
    return found, files, problems
