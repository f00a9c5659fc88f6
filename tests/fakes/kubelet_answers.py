"""A kubelet whose pod resources answer without a socket, and whose directory is real; what it was asked is counted.

kubelet = KubeletAnswers(folder, monkeypatch)
kubelet.write(held, registered={GPU: ("a", "b")})
kubelet.rows = (PodResourcesRow("default", "one", "main", GPU, ("a",)),)
await kubelet.reader(pods).read()
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.attribution.attribute import PodName, PodResourcesRow
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.kubelet import reader
from nodedevice_agent.kubelet.directory import KubeletDirectory
from nodedevice_agent.kubelet.pod_resources import PodResourcesRefused, PodResourcesUnavailable
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import ClaimRow, DevicesByID, HealthyDevices, HeldByPod, RowsByPod
from nodedevice_agent.lib.file_reads import FileReads

T = TypeVar("T")


class KubeletAnswers:
    """rows, devices: its answers. problem: why it does not answer at all; devices_problem: why it does not list devices.

    calls: by method, connections beside them. asked: the pods of Get.
    """

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = KubeletDirectory(path)
        self.rows: tuple[PodResourcesRow, ...] = ()
        self.claim_rows: tuple[ClaimRow, ...] = ()
        self.devices: dict[str, DevicesByID] = {}
        self.problem = self.devices_problem = ""
        self.calls: Counter[str] = Counter()
        self.asked: list[str] = []
        # pods that it knows and that have nothing
        self.without_devices: set[PodName] = set()
        # called in each call
        self.meanwhile: Callable[[], object] = lambda: None
        self.directory.device_plugins.mkdir(exist_ok=True)
        monkeypatch.setattr(reader, "connected", self._connected)

    def reader(self, pods: Mapping[str, Pod] | None = None) -> KubeletReader:
        return KubeletReader(self.directory, {} if pods is None else pods)

    def write(self, *held: Allocation, registered: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Another file each time, as the kubelet writes it."""
        self.write_text(encode(Checkpoint(held, dict(registered or {}))))

    def write_text(self, text: str) -> None:
        file = self.directory.checkpoint
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").rename(file)

    # -- as the connection ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _connected(self, socket: Path) -> AsyncIterator["KubeletAnswers"]:
        assert socket == self.directory.pod_resources
        self.calls["connections"] += 1
        yield self

    async def list_pods(self, entries: object = ()) -> RowsByPod:
        self._call("List", self.problem)
        return {name: self._held(*name) for name in {(row.namespace, row.name) for row in self.rows + self.claim_rows}}

    async def get_pod(self, namespace: str, name: str) -> HeldByPod:
        self.asked.append(name)
        self._call("Get", self.problem)
        found = self._held(namespace, name)
        if found == HeldByPod() and (namespace, name) not in self.without_devices:
            raise PodResourcesRefused("UNKNOWN: no such pod")
        return found

    def _held(self, namespace: str, name: str) -> HeldByPod:
        return HeldByPod(
            tuple(row for row in self.rows if (row.namespace, row.name) == (namespace, name)),
            tuple(row for row in self.claim_rows if (row.namespace, row.name) == (namespace, name)),
        )

    async def list_devices(self, before: HealthyDevices, held: Mapping[str, Collection[str]]) -> HealthyDevices:
        self._call("GetAllocatableResources", self.problem or self.devices_problem)
        return HealthyDevices(self.devices)

    def _call(self, name: str, problem: str) -> None:
        self.calls[name] += 1
        self.meanwhile()
        if problem:
            raise PodResourcesUnavailable(problem)


def read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No threads, beside which virtual time would go on."""

    async def run(self: FileReads, read: Callable[[], T]) -> T:
        return read()

    monkeypatch.setattr(FileReads, "run", run)
