"""Parts of GPUs whose containers have limits: the source of one such resource, and its files on the host.

A container gets environment variables and mounts (vgpu.py). It has a directory of its own while it has devices.
"""

import logging
import uuid
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace
from nodedevice_api.names import SM_PERCENT_ANNOTATION

from nodedevice_agent.lib.deviceplugin_server.values import (
    ContainerAllocation,
    ContainerIdentity,
    HeldDevices,
    file_slug,
)
from nodedevice_agent.lib.patient_reads import with_deadlines
from nodedevice_agent.plugins.nvml.boot_memory import gpu_dir
from nodedevice_agent.plugins.nvml.container_directories import ContainerDirectories
from nodedevice_agent.plugins.nvml.devices import Refused
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.environment import CACHE
from nodedevice_agent.plugins.nvml.host_files import is_regular
from nodedevice_agent.plugins.nvml.node_gpus import Fleet
from nodedevice_agent.plugins.nvml.parts import HeldParts
from nodedevice_agent.plugins.nvml.reasons import GpuReason
from nodedevice_agent.plugins.nvml.settings import LimitSettings, NvmlSettings
from nodedevice_agent.plugins.nvml.source import HostOfGpus, NvmlSource
from nodedevice_agent.plugins.nvml.vgpu import SmUse, environment, mounts, sm_percent

log = logging.getLogger(__name__)

_KUBELET = Trouble(
    GpuReason.KUBELET_ALLOCATES,
    f"a kubelet allocates: containers get no directory and no cache, and the annotation {SM_PERCENT_ANNOTATION} does not count",
)


class LimitedSource(NvmlSource):
    def __init__(
        self, name: str, settings: NvmlSettings, host: HostOfGpus, fleet: Fleet, folder: Path, limits: LimitSettings
    ) -> None:
        """folder: of the agent's, for the plugin's own files."""
        super().__init__(name, settings, host, fleet)
        self._limits = limits
        self._sm = SmUse()
        self._directories = ContainerDirectories(folder / "container-directories" / file_slug(name), host.root)
        self._is_of_kubelet = False

    async def holdings(self, held: Sequence[HeldDevices]) -> None:
        """Raises OSError."""
        self._sm.replaced(held)
        await self._directories.keep({f"{each.pod_uid}_{each.container}" for each in held})

    def _of_parts(
        self, held: Sequence[HeldParts], device_ids: Sequence[str], container: ContainerIdentity | None
    ) -> ContainerAllocation:
        given = super()._of_parts(held, device_ids, container)
        percent = sm_percent(held, self._limits, container)
        env = environment(held, self._limits, percent)
        if container is not None:
            self._sm.take(container, device_ids, percent)
        elif not self._is_of_kubelet:
            self._is_of_kubelet = True
            extra = {"resource_name": self.resource_name, "error": _KUBELET.message}
            log.warning("limits of containers are incomplete", extra=extra)
        directory = with_deadlines(partial(self._make_directories, container))
        if directory:
            env[CACHE] = f"{self._limits.mount_path.rstrip('/')}/{uuid.uuid4()}.cache"
        return replace(given, env={**given.env, **env}, mounts=(*given.mounts, *mounts(self._limits, directory)))

    def _make_directories(self, container: ContainerIdentity | None) -> str:
        """Create the directories of the mounts. Returns the container's own path, or "". Raises Refused."""
        limits = self._limits
        if not limits.library:
            return ""
        try:
            if limits.lock:
                self._directories.make_shared(limits.lock)
            if container is not None and limits.directory:
                return self._directories.make(limits.directory, container.pod_uid, container.container)
        except (OSError, ValueError) as error:
            raise Refused(
                f"cannot make the container's directory: {error}; the agent needs {limits.directory} and {limits.lock} of the "
                "host, writable, at the same paths (chart: agents.extraVolumes)",
            ) from error
        return ""

    def _node_troubles(self) -> list[Trouble]:
        needed = (self._limits.library, self._limits.preload) if self._limits.library else ()
        missing = [path for path in needed if path and not is_regular(self._host.root, path)]
        message = (
            f"{' and '.join(missing)} not found, to enforce limits of {self.resource_name}: install it on the node, and let "
            "the agent see it (chart: agents.extraVolumes); or change limits.library and limits.preload"
        )
        return [*super()._node_troubles(), *([Trouble(GpuReason.LIMIT_LIBRARY_MISSING, message)] if missing else [])]

    def _notes(self) -> list[Trouble]:
        return [_KUBELET] if self._is_of_kubelet else []


def source_of(
    resource_name: str, settings: NvmlSettings, host: HostOfGpus, fleet: Fleet, state_dir: Path
) -> NvmlSource:
    parts = settings.parts_of(resource_name)
    if parts is None or parts.limits is None:
        return NvmlSource(resource_name, settings, host, fleet)
    return LimitedSource(resource_name, settings, host, fleet, gpu_dir(state_dir), parts.limits)
