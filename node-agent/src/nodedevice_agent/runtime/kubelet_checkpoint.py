"""What the kubelet's own device manager has on this node, beside ours, by its checkpoint.

With --delivery nri each resource is served by one of the two. While the checkpoint cannot be used, the kubelet's pod resources show
what it has allocated. Where these cannot be read either, nothing is known, and a container waits: starting it without its device is
worse.
Source: kubelet pkg/kubelet/cm/devicemanager @ 1.37, which writes an allocation before the container of it is created.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import Final

from nodedevice_common.log_once import LogOnce

from nodedevice_agent.checkpoint.long_files import MAX_RESPONSE_BYTES
from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, merged
from nodedevice_agent.devicemanager.records.allocations import AllocationKey
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.deviceplugin.codec import with_edits_of
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading, PodReading, Subscriber

log = logging.getLogger(__name__)

_NO_ROWS: Final = "they were not read yet"


class KubeletCheckpoint(Subscriber):
    """A container of the names of resources that the kubelet serves; as of the last refresh()."""

    def __init__(self, reader: KubeletReader) -> None:
        self._reader = reader
        # None while it cannot be used; then the rows count, None while they are unknown, too
        self._checkpoint: Checkpoint | None = Checkpoint()
        self._unread: Mapping[AllocationKey, int] = {}
        self._rows: tuple[PodResourcesRow, ...] | None = None
        self._problem, self._rows_problem = "", _NO_ROWS
        self._problems = LogOnce(log)

    def __contains__(self, resource_name: object) -> bool:
        if self._checkpoint is not None:
            return resource_name in self._checkpoint.registered
        return any(row.resource_name == resource_name for row in self._rows or ())

    @property
    def problem(self) -> str:
        """Why it is not known what the kubelet serves or has allocated; empty while it is known."""
        if self._checkpoint is not None or self._rows is not None:
            return ""
        return (
            f"the kubelet's checkpoint cannot be used ({self._problem}), nor its pod resources ({self._rows_problem})"
        )

    async def refresh(self) -> None:
        """Read what the kubelet has written by now; where that cannot be used, what its pod resources show."""
        await self._reader.read_checkpoint()
        if self._checkpoint is None:
            self.is_outdated = True
            await self._reader.read()

    def checkpoint_read(self, found: CheckpointReading) -> None:
        self._problems.report("cannot read the kubelet's checkpoint", found.problem)
        self._checkpoint, self._problem, self._unread = found.checkpoint, found.problem, found.unread
        self._rows, self._rows_problem = None, _NO_ROWS

    def pods_read(self, found: PodReading) -> None:
        """All names are in the checkpoint, while it can be used."""
        if self._checkpoint is None:
            self._rows, self._rows_problem = found.rows, found.problem

    def requests_met(self, pod_uid: str, pod: PodName | None) -> frozenset[tuple[str, str]]:
        """Container and resource name of everything that the kubelet has allocated to a pod. pod: None where it is not known."""
        if self._checkpoint is not None:
            entries = (a for a in self._checkpoint.allocations if a.pod_uid == pod_uid)
            return frozenset((a.container, a.resource_name) for a in entries)
        return frozenset((row.container, row.resource_name) for row in self._rows_of(pod))

    def given(self, pod_uid: str, container: str) -> ContainerEdits:
        """What the kubelet's plugins responded for a container, empty where it has none of their devices."""
        allocations = self._checkpoint.allocations if self._checkpoint is not None else ()
        found = (a for a in allocations if (a.pod_uid, a.container) == (pod_uid, container))
        responses = {a.resource_name: a.edits for a in map(with_edits_of, found) if a.edits is not None}
        return merged(responses)[0]

    def unknown_response(self, pod_uid: str, pod: PodName, container: str) -> str:
        """Why it is not known what the kubelet's plugins have set for a container; empty where it is known."""
        for (uid, name, resource_name), size in self._unread.items():
            if (uid, name) == (pod_uid, container):
                return (
                    f"the response of the device plugin of {resource_name} in the kubelet's checkpoint has {size} bytes and is "
                    f"not read: have the plugin respond with at most {MAX_RESPONSE_BYTES}"
                )
        held = next((row.resource_name for row in self._rows_of(pod) if row.container == container), "")
        if held:
            return f"the kubelet has allocated {held} to it, and its checkpoint cannot be used ({self._problem})"
        return self.problem

    def _rows_of(self, pod: PodName | None) -> Iterator[PodResourcesRow]:
        return (row for row in self._rows or () if (row.namespace, row.name) == pod)
