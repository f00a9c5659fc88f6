"""Asks the kubelet who holds what, whenever it has written its checkpoint or a pod that held devices has ended.

The file's change is the trigger; nothing is asked at intervals while all is well. What cannot be read is said once, and tried
again with growing pauses.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from nodedevice_common.backoff import Backoff

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.effects import Effect
from nodedevice_agent.devicemanager.state import CheckpointCorrupt
from nodedevice_agent.kubelet.attribution import Holdings, Row
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.pod_resources import PodResourcesUnavailable, list_pod_resources
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.unix_sockets import SocketIdentity, socket_identity

log = logging.getLogger(__name__)

# File events can be lost: whether the file is another one by now is looked at from time to time.
_LOOK_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 1.0

# What a checkpoint says, in no order: the kubelet writes its maps in a new one each time.
_Said = frozenset[tuple[str, str, str, tuple[str, ...]]]


class HoldingsReader:
    """look() once before anything is published, then run() until cancelled. poke(): ask again now.

    do: carries out what the mirror answers. trouble: why the checkpoint cannot be used, "" while it can; told: that has changed.
    """

    def __init__(
        self,
        directory: KubeletDirectory,
        mirror: Mirror,
        do: Callable[[Iterable[Effect]], None],
        now: Callable[[], float],
        watcher: FileWatcher,
        told: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._mirror = mirror
        self._do = do
        self._now = now
        self._told = told
        self._changes = watcher.subscribe()
        self._pauses = Backoff(_FIRST_RETRY_SECONDS, _LOOK_SECONDS)
        self._file: SocketIdentity | None = None
        self._said: _Said | None = None
        self._are_rows_known = False
        self._refused = ""
        self.trouble = ""

    def poke(self) -> None:
        """A pod has ended, and the kubelet may tell something else than before."""
        for followed in self._changes.followed:
            self._changes.note(followed, "")

    async def run(self) -> None:
        while True:
            self._changes.follow([self._directory.device_plugins])
            is_failing = not self._are_rows_known or bool(self.trouble)
            happened = await self._changes.wait(self._pauses.next() if is_failing else _LOOK_SECONDS)
            if is_failing or self._mirror.is_outdated or self._is_written(happened):
                await self.look()

    def _is_written(self, happened: Iterable[Path]) -> bool:
        return self._directory.checkpoint in happened or self._file != socket_identity(self._directory.checkpoint)

    async def look(self) -> None:
        """Ask for everything that may have changed, and tell the mirror."""
        # from before the file is read on: what is written during it is another one then
        self._changes.follow([self._directory.device_plugins])
        self._file = socket_identity(self._directory.checkpoint)
        before = self.trouble
        entries = await self._entries()
        if self.trouble != before:
            self._told()
        said = None if entries is None else _said(entries)
        if entries is not None and said == self._said and self._are_rows_known and not self._mirror.is_outdated:
            # only a device list was written
            return
        self._said = said
        self._mirror.being_asked()
        rows = await self._rows()
        if not self.trouble and self._are_rows_known:
            self._pauses.reset()
        was_disputed = self._mirror.disputed
        self._do(self._mirror.mirrored(Holdings(entries, rows), self._now()))
        self._tell_disputed(was_disputed)

    async def _entries(self) -> tuple[Allocation, ...] | None:
        try:
            # in a thread: its checksum goes through every byte of what plugins answered
            checkpoint = await asyncio.to_thread(self._directory.read_checkpoint)
        except CheckpointCorrupt as exc:
            if str(exc) != self.trouble:
                path = str(self._directory.checkpoint)
                log.error("the kubelet's checkpoint cannot be used", extra={"path": path, "error": str(exc)})
            self.trouble = str(exc)
            return None
        self.trouble = ""
        return checkpoint.allocations

    async def _rows(self) -> tuple[Row, ...] | None:
        try:
            rows = await list_pod_resources(self._directory.pod_resources)
        except PodResourcesUnavailable as exc:
            if self._are_rows_known or not self._refused:
                path = str(self._directory.pod_resources)
                log.warning("the kubelet's pod resources do not answer", extra={"socket": path, "error": str(exc)})
            self._are_rows_known, self._refused = False, str(exc)
            return None
        self._are_rows_known, self._refused = True, ""
        return rows

    def _tell_disputed(self, before: tuple[Allocation, ...]) -> None:
        for allocation in self._mirror.disputed:
            if allocation not in before:
                extra = {
                    "resource_name": allocation.resource_name,
                    "pod_uid": allocation.pod_uid,
                    "device_ids": list(allocation.device_ids),
                }
                log.error("the kubelet gave a device to two pods; this one is left out", extra=extra)


def _said(entries: Iterable[Allocation]) -> _Said:
    return frozenset((a.pod_uid, a.container, a.resource_name, a.device_ids) for a in entries)
