"""Makes the kubelet release devices of ended pods after their resource has moved to the agent.

The kubelet counts devices of ended pods as allocated until the next pod arrives. It then rejects that pod permanently if no plugin
serves the resource to the kubelet any more. A List call on its PodResources socket frees the devices as well. The kubelet's file
keeps them until its next write, and counts after a restart: so the calls continue while the file has such names.
Source: kubelet pkg/kubelet/cm/devicemanager UpdateAllocatedDevices, pkg/kubelet/apis/podresources server_v1.go List @ 1.37.
"""

import logging
import math
from collections.abc import Set as AbstractSet
from pathlib import Path

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading, Subscriber

log = logging.getLogger(__name__)

# A move takes minutes: the kubelet keeps a name for five minutes after its plugin has gone.
CHECK_SECONDS = 10.0


class KubeletTakeover(Subscriber):
    """Requests List calls while the kubelet's file has names that moved here. socket: for log messages."""

    def __init__(self, manager: DeviceManager, socket: Path) -> None:
        self._manager = manager
        self._socket = socket
        # resources in the last usable checkpoint, including resources of ended pods
        self._allocated: AbstractSet[str] = frozenset()
        # the last logged result: the names, and the error, if any
        self._logged: tuple[AbstractSet[str], str] = frozenset(), ""

    @property
    def pace(self) -> Pace:
        return Pace(check_seconds=CHECK_SECONDS, list_seconds=CHECK_SECONDS if self._moved() else math.inf)

    def checkpoint_read(self, found: CheckpointReading) -> None:
        if found.checkpoint is not None:
            self._allocated = {allocation.resource_name for allocation in found.checkpoint.allocations}

    def pods_read(self, found: PodReading) -> None:
        names = self._moved()
        is_asked = found.is_listed or found.rows is None
        if not is_asked or (names, found.problem) == self._logged:
            return
        self._logged = names, found.problem
        extra = {"resource_names": sorted(names)}
        if names and found.problem:
            message = "cannot have the kubelet forget devices of names that moved here; its next pod with them may fail"
            log.warning(message, extra={**extra, "socket": str(self._socket), "error": found.problem})
        elif names:
            log.info("the kubelet forgot devices of ended pods of names that moved here", extra=extra)

    def _moved(self) -> AbstractSet[str]:
        """Return the names in the kubelet's allocations that the agent serves now."""
        known = self._manager.resources
        return {
            name for name in self._allocated if name in known and known[name].presence.state is EndpointState.RUNNING
        }
