"""The kubelet's directory and its checkpoint, whatever files it has."""

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodedevice_agent.checkpoint import files
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint, CheckpointCorrupt
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet import state_reader
from nodedevice_agent.kubelet.attribution import KubeletState
from nodedevice_agent.kubelet.backend import endpoint_name
from nodedevice_agent.kubelet.directory import CHECKPOINT, read_checkpoint
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.pod_resources import PodResourcesUnavailable
from nodedevice_agent.kubelet.readings import PodResourcesRow
from nodedevice_agent.kubelet.state_reader import KubeletDirectory, KubeletStateReader
from nodedevice_agent.lib.file_watcher import FileWatcher

from tests.fakes.background import background
from tests.fakes.polling import until

GOOD = (
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},'
    '"Checksum":3952659280}'
)


@pytest.fixture
def plugin_dir(tmp_path: Path) -> Path:
    path = tmp_path / "device-plugins"
    path.mkdir()
    return path


def test_the_kubelets_own_file_is_read(plugin_dir: Path) -> None:
    (plugin_dir / CHECKPOINT).write_text(GOOD)
    assert list(read_checkpoint(plugin_dir.parent).registered) == ["nvidia.com/gpu"]


def test_no_file_or_no_directory_is_a_kubelet_that_has_written_nothing(plugin_dir: Path, tmp_path: Path) -> None:
    assert read_checkpoint(plugin_dir.parent) == Checkpoint()
    assert read_checkpoint(tmp_path / "none") == Checkpoint()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not JSON"),
        (b"\xff", "not UTF-8 text"),
        (b"[]", "Expected `object`"),
        (GOOD.replace("3952659280", "1").encode(), "checksum is 1, but"),
    ],
)
def test_an_invalid_checkpoint_names_the_cause(plugin_dir: Path, content: bytes, why: str) -> None:
    (plugin_dir / CHECKPOINT).write_bytes(content)
    with pytest.raises(CheckpointCorrupt, match=why):
        read_checkpoint(plugin_dir.parent)


def test_a_file_without_end_is_not_read_to_its_end(plugin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_BYTES", len(GOOD) - 1)
    (plugin_dir / CHECKPOINT).write_text(GOOD)
    with pytest.raises(CheckpointCorrupt, match="cannot be read: bigger than"):
        read_checkpoint(plugin_dir.parent)


@pytest.mark.parametrize(("make", "why"), [(os.mkdir, "Is a directory"), (os.mkfifo, "not a regular file")])
def test_what_is_no_file_is_neither_read_nor_awaited(plugin_dir: Path, make: Callable[[Path], None], why: str) -> None:
    make(plugin_dir / CHECKPOINT)
    with pytest.raises(CheckpointCorrupt, match=f"cannot be read: {why}"):
        read_checkpoint(plugin_dir.parent)


def test_socket_names_are_short_and_unique_to_the_agent() -> None:
    names = [endpoint_name(name) for name in ("example.com/gpu", "example.org/gpu", f"example.com/{'x' * 63}")]
    assert len(set(names)) == 3
    assert all(name.startswith("nodedevice-") and name.endswith(".sock") and len(name) <= 41 for name in names)


async def test_a_pod_that_finishes_meanwhile_outdates_it(plugin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = Mirror(0.0)
    host = SimpleNamespace(do=lambda effects: None, now=lambda: 0.0)
    directory = KubeletDirectory(plugin_dir.parent, plugin_dir / "own")
    reader = KubeletStateReader(directory, mirror, cast(PluginHost, host), FileWatcher(), lambda: None)
    pods_that_finish = iter([True, False])

    async def rows(socket: Path) -> tuple[PodResourcesRow, ...]:
        mirror.is_outdated = mirror.is_outdated or next(pods_that_finish)
        return ()

    monkeypatch.setattr(state_reader, "list_pod_resources", rows)
    await reader.read()
    assert mirror.is_outdated
    await reader.read()
    assert not mirror.is_outdated


class Node:
    """A reader beside the kubelet's files. rows: what its PodResources answers; None: it does not. states: what the mirror got."""

    def __init__(self, plugin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.file = plugin_dir / CHECKPOINT
        self.rows: tuple[PodResourcesRow, ...] | None = ()
        self.states: list[KubeletState] = []
        self.conflicts: tuple[Allocation, ...] = ()
        self.asked: list[Path] = []
        self.troubles = 0
        self.mirror = cast(Any, SimpleNamespace(is_outdated=True, conflicts=(), mirrored=self._mirrored))
        host = SimpleNamespace(do=lambda effects: None, now=lambda: 7.0)
        self.directory = KubeletDirectory(plugin_dir.parent, plugin_dir / "own")
        self.watcher = FileWatcher()
        self.reader = KubeletStateReader(
            self.directory, self.mirror, cast(PluginHost, host), self.watcher, self._trouble_changed
        )
        monkeypatch.setattr(state_reader, "list_pod_resources", self._list)

    async def _list(self, socket: Path) -> tuple[PodResourcesRow, ...]:
        self.asked.append(socket)
        if self.rows is None:
            raise PodResourcesUnavailable("no socket")
        return self.rows

    def _mirrored(self, state: KubeletState, now: float) -> list[Any]:
        assert now == 7.0
        self.states.append(state)
        self.mirror.conflicts = self.conflicts
        return []

    def _trouble_changed(self) -> None:
        self.troubles += 1

    def write(self, *held: Allocation) -> None:
        """Another file each time, as the kubelet writes it."""
        self.file.with_suffix(".new").write_text(encode(Checkpoint(held, {GPU: ("a", "b")})))
        self.file.with_suffix(".new").rename(self.file)


GPU = "example.com/gpu"
HELD = Allocation("p", "main", GPU, {-1: ("a",)}, b"")


@pytest.fixture
def node(plugin_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(plugin_dir, monkeypatch)


async def test_the_mirror_gets_what_is_new(node: Node) -> None:
    node.write(HELD)
    await node.reader.read()
    (state,) = node.states
    assert [a.device_ids for a in state.entries or ()] == [("a",)]
    assert state.rows == ()
    assert node.asked == [node.directory.pod_resources]
    assert not node.mirror.is_outdated
    # only a device list was written
    node.write(HELD)
    await node.reader.read()
    assert len(node.states) == 1
    node.mirror.is_outdated = True
    await node.reader.read()
    node.write()
    await node.reader.read()
    assert [len(state.entries or ()) for state in node.states] == [1, 1, 0]


async def test_trouble_with_the_checkpoint_is_said_once_and_when_it_is_over(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.file.write_text("{")
    for _ in range(2):
        await node.reader.read()
    assert node.troubles == 1
    assert "not JSON" in node.reader.trouble
    assert node.states[-1].entries is None
    (record,) = caplog.records
    assert (record.message, vars(record)["path"]) == ("invalid kubelet checkpoint", str(node.file))
    assert vars(record)["error"] == node.reader.trouble
    node.write()
    await node.reader.read()
    assert (node.reader.trouble, node.troubles, len(caplog.records)) == ("", 2, 1)


async def test_pod_resources_that_do_not_answer_are_said_once_and_asked_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    node.write(HELD)
    for rows, said in ((None, 1), (None, 1), ((), 1), (None, 2)):
        node.rows = rows
        node.mirror.is_outdated = True
        await node.reader.read()
        assert node.states[-1].rows == rows
        assert len(caplog.records) == said
    assert caplog.records[0].message == "kubelet pod resources unreachable; retrying"
    assert vars(caplog.records[0])["socket"] == str(node.directory.pod_resources)
    assert "no socket" in vars(caplog.records[0])["error"]
    # the same entries are read again, as rows are missing
    node.mirror.is_outdated = False
    before = len(node.states)
    await node.reader.read()
    assert len(node.states) == before + 1


async def test_each_new_conflict_is_logged(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    other = Allocation("q", "main", GPU, {-1: ("b",)}, b"")
    for node.conflicts in ((HELD,), (HELD,), (HELD, other)):
        node.mirror.is_outdated = True
        await node.reader.read()
    found = [vars(record) for record in caplog.records if record.message.startswith("conflict: the kubelet allocated")]
    assert [(each["resource_name"], each["pod_uid"], each["device_ids"]) for each in found] == [
        (GPU, "p", ["a"]),
        (GPU, "q", ["b"]),
    ]


async def test_it_is_read_again_when_it_is_written_or_asked_for(node: Node) -> None:
    node.write()
    with node.watcher:
        await node.reader.read()
        async with background(node.reader.run()):
            node.write(HELD)
            await until(lambda: len(node.states) == 2)
            node.mirror.is_outdated = True
            node.reader.poke()
            await until(lambda: len(node.states) == 3)


async def test_a_failure_is_read_again_whatever_has_become_of_the_file(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.write(HELD)
    await node.reader.read()
    with monkeypatch.context() as broken, node.watcher:
        broken.setattr(node.mirror, "mirrored", lambda *_: 1 / 0)
        node.mirror.is_outdated = True
        node.reader.poke()
        with pytest.raises(ZeroDivisionError):
            await node.reader.run()
    # the same entries
    await node.reader.read()
    assert len(node.states) == 2
