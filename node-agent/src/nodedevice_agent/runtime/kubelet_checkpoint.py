"""What the kubelet's own device manager has on this node, beside ours: from its checkpoint, read again when the file has changed.

With --runtime nri each resource is served by one of the two. Only reads, and in a thread: its checksum covers every byte of the
plugins' responses, which takes seconds where these are long. Where the checkpoint is unreadable the kubelet counts as having
nothing: holding a pod back is better than starting it without its device.
Source: kubelet pkg/kubelet/cm/devicemanager @ 1.37, which writes an allocation before the container of it is created.
"""

import asyncio
import logging
from pathlib import Path

from nodedevice_common.threads import in_thread

from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint, CheckpointCorrupt
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR, read_checkpoint
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity

log = logging.getLogger(__name__)


class KubeletCheckpoint:
    """A container of the names of resources that the kubelet serves; as of the last refresh()."""

    def __init__(self, kubelet_dir: Path) -> None:
        self._reading = asyncio.Lock()
        self._kubelet_dir = kubelet_dir
        self._identity: FileIdentity | None = None
        self._checkpoint = Checkpoint()
        # logged, until it is read again
        self._problem = ""

    def __contains__(self, resource_name: object) -> bool:
        return resource_name in self._checkpoint.registered

    async def refresh(self) -> None:
        """Read what the kubelet has written by now."""
        async with self._reading:
            await in_thread(self._read)

    def requests_met(self, pod_uid: str) -> frozenset[tuple[str, str]]:
        """Container and resource name of everything that the kubelet has allocated to a pod."""
        found = (a for a in self._checkpoint.allocations if a.pod_uid == pod_uid)
        return frozenset((a.container, a.resource_name) for a in found)

    def gives(self, variable: str, pod_uid: str, container: str) -> bool:
        """Whether a plugin of the kubelet's answered this environment variable for a container."""
        found = (a for a in self._checkpoint.allocations if (a.pod_uid, a.container) == (pod_uid, container))
        return any(a.edits is not None and variable in a.edits.envs for a in map(with_edits_of, found))

    def allocated_names(self) -> frozenset[str]:
        """Resources of which the kubelet's file has allocations, also to pods that have ended."""
        return frozenset(a.resource_name for a in self._checkpoint.allocations)

    def _read(self) -> None:
        """In the thread."""
        try:
            found = file_identity(self._kubelet_dir / PLUGIN_DIR / CHECKPOINT)
            if found is None or found != self._identity:
                self._checkpoint = read_checkpoint(self._kubelet_dir)
                self._identity, self._problem = found, ""
        except (OSError, CheckpointCorrupt) as exc:
            if str(exc) != self._problem:
                log.warning("cannot read the kubelet's checkpoint", extra={"error": str(exc)})
            self._checkpoint, self._identity, self._problem = Checkpoint(), None, str(exc)
