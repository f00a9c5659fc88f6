"""The state directory on a real file system that is full, or whose files are removed, while the agent runs."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint import writer as checkpoint_writer
from nodedevice_agent.checkpoint.files import FILE_NAME, journal_path
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.checkpoint.writer import CheckpointStore
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.plugin import FakeDevice, FakePlugin

pytestmark = pytest.mark.root

RESOURCE = "example.com/fake"
# the journal has 256 KiB of it
DISK_BYTES = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "nodedevice-test", path], check=True)
    yield path
    subprocess.run(["umount", "--lazy", path], check=True)


def fill(disk: Path) -> Path:
    """Not a byte is left. Returns the file that takes it all."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(bytes(free.f_bavail * free.f_bsize))
    assert os.statvfs(disk).f_bavail == 0
    return filler


def held_by(*uids: str) -> Checkpoint:
    allocations = (Allocation(uid, "main", RESOURCE, {-1: (f"d-{uid}",)}, b"ok") for uid in uids)
    return Checkpoint(tuple(allocations), {RESOURCE: ()})


def holders(state_dir: Path) -> list[str]:
    """Pod UIDs, as the next start reads them."""
    found = checkpoint_file.read(state_dir)
    assert found is not None
    return [allocation.pod_uid for allocation in found.allocations]


class TestStore:
    @pytest.fixture
    def store(self, disk: Path) -> Iterator[CheckpointStore]:
        """Two states are on disk, the second in the journal alone."""
        store = CheckpointStore(disk)
        store.save(held_by("a"))
        store.save(held_by("a", "b"))
        yield store
        store.close()

    @pytest.mark.parametrize("whole", [False, True])
    def test_the_journal_goes_on_after_a_whole_write_that_failed(
        self, disk: Path, store: CheckpointStore, whole: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        filler = fill(disk)
        store.save(held_by("a", "b"), whole=True)
        for uids in (("a",), ("a", "c")):
            store.save(held_by(*uids), whole=whole)
            assert holders(disk) == [*uids]
            assert not store.is_whole
            assert store.problem.startswith(f"cannot write {disk / FILE_NAME}: No space left on device; its journal")
        assert [(r.levelname, r.__dict__["error"]) for r in caplog.records] == [("WARNING", "No space left on device")]
        filler.unlink()
        store.save(held_by("a", "c"), whole=True)
        assert store.is_whole
        assert store.problem == ""
        assert [a.pod_uid for a in decode((disk / FILE_NAME).read_text()).allocations] == ["a", "c"]
        store.save(held_by("d"))
        assert holders(disk) == ["d"]

    @pytest.mark.parametrize("removed", [FILE_NAME, f"{FILE_NAME}.journal"])
    def test_a_file_that_is_removed_is_written_again(self, disk: Path, store: CheckpointStore, removed: str) -> None:
        (disk / removed).unlink()
        for uids in (("a", "c"), ("c",)):
            store.save(held_by(*uids))
            assert holders(disk) == [*uids]
        assert journal_path(disk / FILE_NAME).exists()


def answer(device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
    """That of one device is bigger than the journal."""
    big = {"BIG": "x" * 30_000} if "big" in device_ids else {}
    return api_pb2.ContainerAllocateResponse(envs={"IDS": ",".join(device_ids), **big})


def pod(uid: str) -> Pod:
    return Pod(uid, "default", uid, (Container("main", limits={RESOURCE: 1}),))


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice(), "big": FakeDevice()})
    plugin.knobs.allocate_answer = answer
    yield plugin
    await plugin.stop()


async def created(manager: HostedManager, uid: str) -> str:
    """The devices that a container of the pod gets, or why it is refused."""
    settings = AgentSettings(nri_socket=str(manager.folder / "nri.sock"), kubelet_dir=str(manager.folder / "kubelet"))
    backend = NriBackend(settings, manager.host, reader_of(settings.kubelet_dir), lambda: None)
    try:
        edits = await backend.create_container(Sandbox("s", uid, "default", uid), RunningContainer("c", "s", "main"))
    except InjectionRefused as refused:
        return str(refused)
    return "" if edits is None else edits.envs["IDS"]


async def test_a_new_pod_does_not_hold_up_the_containers_of_others(
    disk: Path, plugin: FakePlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_writer, "JOURNAL_BYTES", 16 * 1024)
    async with hosted(disk, waits_for_runtime=True) as manager:
        await manager.register(plugin)
        manager.pods(pod("old"))
        resource = manager.manager.resources[RESOURCE]
        await manager.until(lambda: set(resource.use.holders) == {"a"})
        await manager.host.saved()
        assert manager.host.unsaved == ""
        filler = fill(disk)
        manager.pods(pod("old"), pod("new"))
        await manager.until(lambda: set(resource.use.holders) == {"a", "big"})
        assert await created(manager, "new") == (
            "the allocation is not on disk yet: is the disk of --state-dir slow or full?"
        )
        assert await created(manager, "old") == "a"
        await manager.until(lambda: "No space left on device; no new allocation is published" in manager.host.unsaved)
        filler.unlink()
        async with asyncio.timeout(60):
            await manager.host.saved()
        assert await created(manager, "new") == "big"
        assert manager.host.unsaved == ""
