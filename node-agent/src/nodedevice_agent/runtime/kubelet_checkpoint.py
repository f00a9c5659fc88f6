"""Reads from the kubelet's checkpoint which resources its own device manager serves and has allocated.

If the checkpoint cannot be used, the kubelet's pod resources list its allocations. If these cannot be read either, a container
waits: starting it without its device is worse.
Source: kubelet pkg/kubelet/cm/devicemanager @ 1.37, which writes an allocation before it creates the container.
"""

import logging
from collections.abc import Iterator
from typing import Final

from nodedevice_common.log_once import LogOnce

from nodedevice_agent.checkpoint.long_files import MAX_RESPONSE_BYTES
from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, merged
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading, PodReading, Subscriber

log = logging.getLogger(__name__)

_NO_PODS: Final = PodReading(None, None, "they were not read yet")


class KubeletCheckpoint(Subscriber):
    """Holds the names of the resources that the kubelet served at the last refresh(); supports `in`."""

    def __init__(self, reader: KubeletReader) -> None:
        self._reader = reader
        self._read = CheckpointReading(Checkpoint())
        # used if the checkpoint cannot be used
        self._pods = _NO_PODS
        self._problems = LogOnce(log)

    def __contains__(self, resource_name: object) -> bool:
        if self._read.checkpoint is not None:
            return resource_name in self._read.checkpoint.registered
        return any(row.resource_name == resource_name for row in self._pods.rows or ())

    @property
    def problem(self) -> str:
        """Why the kubelet's resources and allocations are unknown; empty if they are known."""
        if self._read.checkpoint is not None or self._pods.rows is not None:
            return ""
        why, why_no_pods = self._read.problem, self._pods.problem
        return f"the kubelet's checkpoint cannot be used ({why}), nor its pod resources ({why_no_pods})"

    async def refresh(self) -> None:
        """Read the current checkpoint; if it cannot be used, read pod resources."""
        await self._reader.read_checkpoint()
        if self._read.checkpoint is None:
            self.is_outdated = True
            await self._reader.read()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        self._problems.report("cannot read the kubelet's checkpoint", found.problem)
        self._read, self._pods = found, _NO_PODS

    def pods_read(self, found: PodReading) -> None:
        """Keep the rows only if the checkpoint cannot be used: otherwise it has all names."""
        if self._read.checkpoint is None:
            self._pods = found

    def requests_met(self, pod_uid: str, pod: PodName | None) -> frozenset[tuple[str, str]]:
        """Return container and resource name of each allocation of the kubelet to a pod. pod: None if unknown."""
        if self._read.checkpoint is not None:
            entries = (a for a in self._read.checkpoint.allocations if a.pod_uid == pod_uid)
            return frozenset((a.container, a.resource_name) for a in entries)
        return frozenset((row.container, row.resource_name) for row in self._rows_of(pod))

    def given(self, pod_uid: str, container: str) -> ContainerEdits:
        """Return the merged responses of the kubelet's plugins for a container; empty without such devices."""
        allocations = self._read.checkpoint.allocations if self._read.checkpoint is not None else ()
        found = (a for a in allocations if (a.pod_uid, a.container) == (pod_uid, container))
        responses = {a.resource_name: a.edits for a in map(with_edits_of, found) if a.edits is not None}
        return merged(responses)[0]

    def unknown_response(self, pod_uid: str, pod: PodName, container: str) -> str:
        """Return why the responses of the kubelet's plugins for a container are unknown; empty if they are known."""
        for (uid, name, resource_name), size in self._read.unread.items():
            if (uid, name) == (pod_uid, container):
                return (
                    f"the response of the device plugin of {resource_name} in the kubelet's checkpoint has {size} bytes and is "
                    f"not read: have the plugin respond with at most {MAX_RESPONSE_BYTES}"
                )
        held = next((row.resource_name for row in self._rows_of(pod) if row.container == container), "")
        if held:
            return f"the kubelet has allocated {held} to it, and its checkpoint cannot be used ({self._read.problem})"
        return self.problem

    def _rows_of(self, pod: PodName | None) -> Iterator[PodResourcesRow]:
        return (row for row in self._pods.rows or () if (row.namespace, row.name) == pod)
