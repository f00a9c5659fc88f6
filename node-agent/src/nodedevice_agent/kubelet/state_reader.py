"""Reads the kubelet's checkpoint and pod resources, when the checkpoint was written or a pod that held devices has finished.

File changes trigger a read; nothing is polled while all is well. Each failure is logged once and retried with growing pauses.
Source: kubelet pkg/kubelet/cm/devicemanager, where the plugin directory is a constant @ 1.37.
"""

import logging
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from nodedevice_common.pacing import Backoff
from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, CheckpointCorrupt
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kubelet.attribution import KubeletState
from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR, POD_RESOURCES, read_checkpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.pod_resources import PodResourcesUnavailable, list_pod_resources
from nodedevice_agent.kubelet.readings import PodResourcesRow
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity

log = logging.getLogger(__name__)

# File events can be lost: the file's identity is compared from time to time.
_RESYNC_SECONDS = 30.0
_FIRST_RETRY_SECONDS = 1.0


class KubeletDirectory:
    """Paths below --kubelet-dir, as this process sees them. Only our own sockets are written there, see kubelet/backend.py."""

    def __init__(self, path: Path, plugin_dir: Path) -> None:
        """Raises AgentSettingsError where our own plugin directory is the kubelet's: each would remove the other's sockets."""
        self.path = path
        self.device_plugins = path / PLUGIN_DIR
        self.checkpoint = self.device_plugins / CHECKPOINT
        self.pod_resources = path / POD_RESOURCES
        if os.path.realpath(plugin_dir) == os.path.realpath(self.device_plugins):
            raise AgentSettingsError(
                f"--plugin-dir {plugin_dir} is the kubelet's plugin directory, and --runtime kubelet needs another one: "
                "set --plugin-dir to a directory of this agent and register the device plugins there"
            )

    def read_checkpoint(self) -> Checkpoint:
        """Raises CheckpointCorrupt."""
        return read_checkpoint(self.path)


class KubeletStateReader:
    """read() once before anything is published, then run() until cancelled. poke(): read again now.

    trouble: why the checkpoint cannot be used, "" while it can. on_trouble: called when that has changed.
    """

    def __init__(
        self,
        directory: KubeletDirectory,
        mirror: Mirror,
        host: PluginHost,
        watcher: FileWatcher,
        on_trouble: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._mirror = mirror
        self._host = host
        self._on_trouble = on_trouble
        self._changes = watcher.subscribe()
        self._pauses = Backoff(_FIRST_RETRY_SECONDS, _RESYNC_SECONDS)
        self._file: FileIdentity | None = None
        # unordered: the kubelet writes its maps in another order each time
        self._last_entries: frozenset[tuple[str, str, str, tuple[str, ...]]] | None = None
        # None before the first call
        self._is_listed: bool | None = None
        self.trouble = ""

    def poke(self) -> None:
        """A pod has finished: the kubelet's state may be another."""
        for followed in self._changes.followed:
            self._changes.note(followed, "")

    async def run(self) -> None:
        while True:
            self._changes.follow([self._directory.device_plugins])
            is_failing = not self._is_listed or bool(self.trouble)
            changed = await self._changes.wait(self._pauses.next() if is_failing else _RESYNC_SECONDS)
            if is_failing or self._mirror.is_outdated or self._is_written(changed):
                try:
                    await self.read()
                except Exception:
                    # run again, it is read again, whatever has become of the file
                    self._is_listed = None
                    raise

    def _is_written(self, changed: Iterable[Path]) -> bool:
        return self._directory.checkpoint in changed or self._file != file_identity(self._directory.checkpoint)

    async def read(self) -> None:
        """Read what may have changed, and update the mirror."""
        # from before the file is read: a write during the read gives it another identity
        self._changes.follow([self._directory.device_plugins])
        self._file = file_identity(self._directory.checkpoint)
        entries, trouble = await self._read_checkpoint()
        if trouble != self.trouble:
            if trouble:
                path = str(self._directory.checkpoint)
                log.error("invalid kubelet checkpoint", extra={"path": path, "error": trouble})
            self.trouble = trouble
            self._on_trouble()
        unordered = None
        if entries is not None:
            unordered = frozenset((a.pod_uid, a.container, a.resource_name, a.device_ids) for a in entries)
            if unordered == self._last_entries and self._is_listed and not self._mirror.is_outdated:
                # only a device list was written
                return
        self._last_entries = unordered
        # a pod that finishes before the result makes it outdated again
        self._mirror.is_outdated = False
        rows = await self._list_rows()
        if not self.trouble and self._is_listed:
            self._pauses.reset()
        known = self._mirror.conflicts
        self._host.do(self._mirror.mirrored(KubeletState(entries, rows), self._host.now()))
        self._log_conflicts(known)

    def _log_conflicts(self, known: tuple[Allocation, ...]) -> None:
        for conflict in self._mirror.conflicts:
            if conflict not in known:
                extra = {
                    "resource_name": conflict.resource_name,
                    "pod_uid": conflict.pod_uid,
                    "device_ids": list(conflict.device_ids),
                }
                log.error("conflict: the kubelet allocated a device to two pods; omitting this one", extra=extra)

    async def _read_checkpoint(self) -> tuple[tuple[Allocation, ...] | None, str]:
        """The entries, or None and why there are none."""
        try:
            # in a thread: the checksum covers every byte of the plugins' responses
            return (await in_thread(self._directory.read_checkpoint)).allocations, ""
        except CheckpointCorrupt as exc:
            return None, str(exc)

    async def _list_rows(self) -> tuple[PodResourcesRow, ...] | None:
        try:
            rows = await list_pod_resources(self._directory.pod_resources)
        except PodResourcesUnavailable as exc:
            if self._is_listed is not False:
                extra = {"socket": str(self._directory.pod_resources), "error": str(exc)}
                log.warning("kubelet pod resources unreachable; retrying", extra=extra)
            self._is_listed = False
            return None
        self._is_listed = True
        return rows
