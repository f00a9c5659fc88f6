"""The kubelet's directory and its checkpoint, whatever files it has."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint, CheckpointCorrupt
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.kubelet import directory
from nodedevice_agent.kubelet.backend import endpoint_name
from nodedevice_agent.kubelet.directory import CHECKPOINT, KubeletDirectory, read_checkpoint

GOOD = (
    '{"Data":{"PodDeviceEntries":null,"RegisteredDevices":{"nvidia.com/gpu":["GPU-0650a168-e770-3ea8-8ac3-8a1d419763e0"]}},'
    '"Checksum":3952659280}'
)


@pytest.fixture
def plugin_dir(tmp_path: Path) -> Path:
    path = tmp_path / "device-plugins"
    path.mkdir()
    return path


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
    monkeypatch.setattr(directory, "MAX_BYTES", len(GOOD) - 1)
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


def test_the_kubelets_plugin_directory_is_never_our_own(plugin_dir: Path) -> None:
    """Each would remove the other's sockets."""
    directory, link = KubeletDirectory(plugin_dir.parent), plugin_dir.with_name("link")
    link.symlink_to(plugin_dir)
    for own in (plugin_dir, link):
        with pytest.raises(AgentSettingsError, match=f"--plugin-dir {own} is the kubelet's plugin directory"):
            directory.refuse_as_own(own)
    directory.refuse_as_own(plugin_dir.with_name("plugins"))
