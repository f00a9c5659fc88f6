"""Has the kubelet forget the devices that it gave out of names which plugins have registered here since.

The kubelet counts devices of ended pods as given out until the next pod comes, and fails that pod for good when none of its plugins
has the name any more. A List on its PodResources socket frees them too. Its file has what it forgot until it writes that again, and
after its own restart the file counts: so this goes on while the file has such names.
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

# A move takes minutes, as the kubelet keeps a name for five after its plugin has gone.
CHECK_SECONDS = 10.0


class KubeletTakeover(Subscriber):
    """Has pod resources listed for as long as there are such names. socket: for its messages."""

    def __init__(self, manager: DeviceManager, socket: Path) -> None:
        self._manager = manager
        self._socket = socket
        # of the last checkpoint that could be used, also of pods that have ended
        self._allocated: AbstractSet[str] = frozenset()
        # the outcome that was logged last: the names, and the error, if any
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
        """Names of which the kubelet has given devices out, and that are served here."""
        known = self._manager.resources
        return {
            name for name in self._allocated if name in known and known[name].presence.state is EndpointState.RUNNING
        }
