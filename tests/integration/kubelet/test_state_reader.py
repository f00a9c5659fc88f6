"""When the kubelet's state is read, and what happens without a response: real files and sockets, the test plays the kubelet."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.checkpoint.long_files import KubeletFile
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet import reader
from nodedevice_agent.kubelet.attribution_feed import AttributionFeed
from nodedevice_agent.kubelet.directory import KubeletDirectory, read_file
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib import filesystem

from tests.fakes.background import background
from tests.fakes.hosted_manager import pod
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.fakes.polling import until
from tests.fakes.settled import attributing

GPU = "example.com/gpu"
PATIENCE_SECONDS = 60.0


class CountedReads(KubeletDirectory):
    """A kubelet's directory that counts how often its checkpoint was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reads = 0
        self.was_read = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def read(self, file: Path, before: Checkpoint | None = None) -> KubeletFile:
        """In a thread."""
        try:
            return read_file(file, before)
        finally:
            self.reads += 1
            self._loop.call_soon_threadsafe(self.was_read.set)

    def write(self, *entries: Allocation, healthy: tuple[str, ...] = ()) -> None:
        """As the kubelet does: another file takes its place."""
        filesystem.replace_durably(self.checkpoint, encode(Checkpoint(entries, {GPU: healthy})))


class Reading:
    """A running reader, its mirror, and the effects."""

    def __init__(self, folder: Path) -> None:
        self.directory = CountedReads(folder)
        self.mirror = attributing(0.0)
        self.mirror.connected(GPU, 1, PluginOptions(), 0.0)
        self.mirror.listed(GPU, 1, accept(Device(f"d{index}") for index in range(4)), 0.0)
        self.mirror.pod_events.synced([pod("one", GPU, 1), pod("two", GPU, 1)], 0.0)
        self.troubles: list[str] = []
        self._changed = asyncio.Event()
        self.reader = KubeletReader(self.directory, self.mirror.pods)
        self.feed = AttributionFeed(self.directory, cast(PluginHost, self), self._trouble)
        self.reader.subscribe(self.feed)

    def held(self) -> dict[str, tuple[str, ...]]:
        return {a.pod_uid: a.device_ids for a in self.mirror.book.of_resource(GPU)}

    async def until_held(self, **expected: tuple[str, ...]) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.held() != expected:
                self._changed.clear()
                await self._changed.wait()

    async def until_read(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.directory.reads < count:
                self.directory.was_read.clear()
                await self.directory.was_read.wait()

    # -- as the PluginHost -----------------------------------------------------------------------------------------------

    @property
    def manager(self) -> Any:
        return self.mirror

    def settle(self) -> None:
        self.mirror.settle(0.0)
        self._changed.set()

    def now(self) -> float:
        return 0.0

    def _trouble(self) -> None:
        self.troubles.append(self.feed.trouble)


def held_by(uid: str, *device_ids: str) -> Allocation:
    return Allocation(uid, "c0", GPU, {-1: device_ids}, b"")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short path: sockets lie below it."""
    found = tmp_path_factory.mktemp("h")
    (found / "device-plugins").mkdir()
    return found


@pytest.fixture
async def resources(folder: Path) -> AsyncIterator[PodResources]:
    async with PodResources(folder / "pod-resources/kubelet.sock") as found:
        yield found


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "_FIRST_PAUSE_SECONDS", 0.01)


@pytest.fixture
async def reading(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Reading]:
    """Has read once, and runs."""
    found = Reading(folder)
    monkeypatch.setattr(reader, "read_file", found.directory.read)
    await found.reader.read()
    async with background(found.reader.run()):
        yield found


async def test_a_written_checkpoint_is_the_trigger(resources: PodResources, reading: Reading) -> None:
    reading.directory.write(held_by("one", "d0"))
    await reading.until_held(one=("d0",))
    reading.directory.write(held_by("two", "d1"), held_by("one", "d0"))
    await reading.until_held(one=("d0",), two=("d1",))


async def test_pod_resources_are_listed_only_when_allocations_change(resources: PodResources, reading: Reading) -> None:
    reading.directory.write(held_by("one", "d0"))
    await reading.until_held(one=("d0",))
    calls, reads = resources.calls, reading.directory.reads
    # health has changed, and maps come in another order each time
    for healthy in (("d0",), ("d0", "d1"), ()):
        reading.directory.write(held_by("one", "d0"), healthy=healthy)
        reads += 1
        await reading.until_read(reads)
    reading.directory.write(held_by("two", "d0"))
    await reading.until_held(two=("d0",))
    assert resources.calls == calls + 1


async def test_a_finished_pod_triggers_a_read(resources: PodResources, reading: Reading) -> None:
    resources.assigned = [AssignedDevices("kube-system", "static", "c0", GPU, {"d3": ()})]
    reading.directory.write(held_by("one", "d0"), held_by("static", "d3"))
    await reading.until_held(one=("d0",), static=("d3",))
    resources.assigned = []
    reading.mirror.pod_events.gone("one", 0.0)
    reading.reader.wake()
    await reading.until_held()


@pytest.mark.usefixtures("quick_retries")
async def test_refused_pod_resources_are_retried(
    folder: Path, resources: PodResources, caplog: pytest.LogCaptureFixture
) -> None:
    resources.refusal = "rejected by rate limit"
    found = Reading(folder)
    found.directory.write(held_by("one", "d0"), held_by("static", "d3"))
    await found.reader.read()
    # pods of the API are attributed by their UID
    assert found.held() == {"one": ("d0",)}
    calls = resources.calls
    async with background(found.reader.run()):
        await until(lambda: resources.calls >= calls + 3)
        resources.assigned = [AssignedDevices("kube-system", "static", "c0", GPU, {"d3": ()})]
        resources.refusal = ""
        await found.until_held(one=("d0",), static=("d3",))
    assert [r.message for r in caplog.records] == ["kubelet pod resources unreachable; retrying"]


async def test_an_invalid_checkpoint_is_logged_once_and_reported_until_it_is_valid(
    resources: PodResources, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    resources.assigned = [AssignedDevices("default", "two", "c0", GPU, {"d2": ()})]
    reading.directory.write(held_by("one", "d0"))
    await reading.until_held(one=("d0",))
    for _ in range(2):
        filesystem.replace_durably(reading.directory.checkpoint, "{")
        reads = reading.directory.reads
        await reading.until_read(reads + 1)
    await reading.until_held(two=("d2",))
    reading.directory.write(held_by("one", "d0"))
    await reading.until_held(one=("d0",))
    assert len(reading.troubles) == 2
    assert reading.troubles[0].startswith("not JSON")
    assert reading.troubles[1] == ""
    assert [r.message for r in caplog.records] == ["invalid kubelet checkpoint"]


@pytest.mark.usefixtures("quick_retries")
async def test_a_device_of_two_pods_is_logged_once(
    folder: Path, resources: PodResources, reading: Reading, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a valid checkpoint the names are used alone, and the first pod keeps the device."""
    resources.assigned = [AssignedDevices("default", name, "c0", GPU, {"d0": ()}) for name in ("one", "two")]
    filesystem.replace_durably(reading.directory.checkpoint, "{")
    await reading.until_held(one=("d0",))
    reading.mirror.pod_events.synced([pod("one", GPU, 1), pod("two", GPU, 1)], 0.0)
    reads = reading.directory.reads
    reading.reader.wake()
    await reading.until_read(reads + 2)
    conflict = "conflict: the kubelet allocated a device to two pods; omitting this one"
    assert [r.message for r in caplog.records].count(conflict) == 1


async def test_a_directory_that_comes_late_is_found(folder: Path, resources: PodResources, reading: Reading) -> None:
    plugins = reading.directory.device_plugins
    plugins.rmdir()
    plugins.mkdir()
    reading.directory.write(held_by("one", "d0"))
    await reading.until_held(one=("d0",))
