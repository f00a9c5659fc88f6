"""Has the kubelet forget the devices that it gave out of names which plugins have registered here since.

The kubelet counts devices of ended pods as given out until the next pod comes, and fails that pod for good when none of its plugins
has the name any more. A List on its PodResources socket frees them too. Its file has what it forgot until it writes that again, and
after its own restart the file counts: so this goes on while the file has such names.
Source: kubelet pkg/kubelet/cm/devicemanager UpdateAllocatedDevices, pkg/kubelet/apis/podresources server_v1.go List @ 1.37.
"""

import asyncio
import logging
from pathlib import Path
from typing import NoReturn

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.resource import EndpointState
from nodedevice_agent.kubelet.directory import POD_RESOURCES
from nodedevice_agent.kubelet.pod_resources import PodResourcesUnavailable, list_pod_resources
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint

log = logging.getLogger(__name__)

# A move takes minutes, as the kubelet keeps a name for five after its plugin has gone.
CHECK_SECONDS = 10.0


class KubeletTakeover:
    """run() until cancelled."""

    def __init__(self, manager: DeviceManager, kubelet_dir: Path) -> None:
        self._manager = manager
        self._checkpoint = KubeletCheckpoint(kubelet_dir)
        self._socket = kubelet_dir / POD_RESOURCES
        # the outcome that was logged last: the names, and the error, if any
        self._logged: tuple[frozenset[str], str] = frozenset(), ""

    async def run(self) -> NoReturn:
        while True:
            await self._free()
            await asyncio.sleep(CHECK_SECONDS)

    async def _free(self) -> None:
        served = {name for name, found in self._manager.resources.items() if found.state is EndpointState.RUNNING}
        names, problem = frozenset[str](), ""
        if served:
            await self._checkpoint.refresh()
            names = self._checkpoint.allocated_names() & served
        if names:
            try:
                await list_pod_resources(self._socket)
            except PodResourcesUnavailable as exc:
                problem = str(exc)
        if (names, problem) == self._logged:
            return
        self._logged = names, problem
        extra = {"resource_names": sorted(names)}
        if problem:
            message = "cannot have the kubelet forget devices of names that moved here; its next pod with them may fail"
            log.warning(message, extra={**extra, "socket": str(self._socket), "error": problem})
        elif names:
            log.info("the kubelet forgot devices of ended pods of names that moved here", extra=extra)
