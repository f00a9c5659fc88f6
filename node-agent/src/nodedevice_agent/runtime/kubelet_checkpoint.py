"""What the kubelet's own device manager has on this node, beside ours, by its checkpoint.

With --runtime nri each resource is served by one of the two. Where the checkpoint cannot be used the kubelet counts as having
nothing: holding a pod back is better than starting it without its device.
Source: kubelet pkg/kubelet/cm/devicemanager @ 1.37, which writes an allocation before the container of it is created.
"""

import logging

from nodedevice_common.log_once import LogOnce

from nodedevice_agent.devicemanager.allocation.allocations import Checkpoint
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, merged
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading

log = logging.getLogger(__name__)


class KubeletCheckpoint:
    """A container of the names of resources that the kubelet serves; as of the last refresh(). A subscriber of the reader."""

    is_outdated = False
    pace = Pace()

    def __init__(self, reader: KubeletReader) -> None:
        self._reader = reader
        self._checkpoint = Checkpoint()
        self._problems = LogOnce(log)

    def __contains__(self, resource_name: object) -> bool:
        return resource_name in self._checkpoint.registered

    async def refresh(self) -> None:
        """Read what the kubelet has written by now."""
        await self._reader.read_checkpoint()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        self._problems.report("cannot read the kubelet's checkpoint", found.problem)
        self._checkpoint = found.checkpoint or Checkpoint()

    def pods_read(self, found: PodReading) -> None:
        """Names and containers are all in the checkpoint."""

    def requests_met(self, pod_uid: str) -> frozenset[tuple[str, str]]:
        """Container and resource name of everything that the kubelet has allocated to a pod."""
        found = (a for a in self._checkpoint.allocations if a.pod_uid == pod_uid)
        return frozenset((a.container, a.resource_name) for a in found)

    def given(self, pod_uid: str, container: str) -> ContainerEdits:
        """What the kubelet's plugins responded for a container, empty where it has none of their devices."""
        found = (a for a in self._checkpoint.allocations if (a.pod_uid, a.container) == (pod_uid, container))
        responses = {a.resource_name: a.edits for a in map(with_edits_of, found) if a.edits is not None}
        return merged(responses)[0]
