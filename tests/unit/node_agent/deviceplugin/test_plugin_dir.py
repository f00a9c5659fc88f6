"""The plugin directory: its lock, the sockets that are cleared, and the errors of one that cannot be used."""

import errno
import os
import socket
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.errors import AgentSettingsError, DirectoryServed

from tests.fakes.sockets import left_behind, listening


@pytest.mark.kubelet("scenario 1")
def test_only_root_may_write(tmp_path: Path) -> None:
    path = tmp_path / "a/b"
    with closing(PluginDirectory.take(path)) as taken:
        assert taken.registration_socket == path / "kubelet.sock"
        assert path.stat().st_mode & 0o027 == 0


@pytest.mark.kubelet("behaviour 3")
def test_clearing_removes_sockets_and_nothing_else(tmp_path: Path) -> None:
    for name in ("old.sock", "kubelet.sock"):
        left_behind(tmp_path / name)
    (tmp_path / "file.sock").write_text("mine")
    (tmp_path / "kubelet_internal_checkpoint").write_text("the kubelet's")
    (tmp_path / "folder").mkdir()
    left_behind(tmp_path / "folder/deep.sock")
    (tmp_path / "link.sock").symlink_to(tmp_path / "folder/deep.sock")
    with closing(PluginDirectory.take(tmp_path)) as taken:
        taken.clear()
        names = {entry.name for entry in tmp_path.iterdir()}
    assert names >= {"file.sock", "kubelet_internal_checkpoint", "folder", "link.sock"}
    assert not names & {"old.sock", "kubelet.sock"}
    assert (tmp_path / "folder/deep.sock").is_socket()


def test_a_second_name_finds_the_socket_after_its_first_is_gone(tmp_path: Path) -> None:
    with listening(tmp_path / "plugin.sock"), closing(PluginDirectory.take(tmp_path)) as taken:
        kept = taken.keep("plugin.sock")
        taken.clear(but=[kept])
        assert not (tmp_path / "plugin.sock").exists()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.connect(str(tmp_path / kept))
        assert taken.keep(kept) == kept
        taken.forget("plugin.sock")
        assert (tmp_path / kept).is_socket()
        taken.forget(kept)
        taken.forget(kept)
        assert not (tmp_path / kept).exists()


def test_a_socket_that_cannot_have_a_second_name_keeps_its_first(tmp_path: Path) -> None:
    with closing(PluginDirectory.take(tmp_path)) as taken:
        assert taken.keep("not-there.sock") == "not-there.sock"
        long = "x" * 100 + ".sock"
        assert taken.keep(long) == long


@pytest.mark.kubelet("behaviour 4", "scenario 2")
def test_another_agent_is_refused_until_the_first_unlocks(tmp_path: Path) -> None:
    with closing(PluginDirectory.take(tmp_path)) as taken:
        with pytest.raises(DirectoryServed, match=r"lock.*--plugin-dir"):
            PluginDirectory.take(tmp_path)
        taken.close()
    # closed twice
    PluginDirectory.take(tmp_path).close()


@pytest.mark.kubelet("behaviour 3")
def test_a_directory_that_another_manager_serves_is_refused(tmp_path: Path) -> None:
    left_behind(tmp_path / "plugin.sock")
    with listening(tmp_path / "kubelet.sock"):
        for _ in range(2):
            with pytest.raises(DirectoryServed, match=r"listens on kubelet\.sock"):
                PluginDirectory.take(tmp_path)
    assert (tmp_path / "kubelet.sock").is_socket()
    assert (tmp_path / "plugin.sock").is_socket()
    # the failed attempt leaves no lock behind
    PluginDirectory.take(tmp_path).close()


def test_a_manager_that_is_too_busy_to_accept_counts(tmp_path: Path) -> None:
    with listening(tmp_path / "kubelet.sock", backlog=0), socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(tmp_path / "kubelet.sock"))
        with pytest.raises(DirectoryServed):
            PluginDirectory.take(tmp_path)


@pytest.mark.kubelet("behaviour 1")
@pytest.mark.parametrize(
    ("make", "error"),
    [
        pytest.param(lambda path: path / ("x" * 100), "too long", id="too long for a socket"),
        pytest.param(lambda path: path / "file" / "below", "cannot be used", id="below a file"),
        pytest.param(lambda path: path / "file", "cannot be used", id="a file"),
        pytest.param(lambda path: Path("/proc/self"), "cannot be used", id="not writable, not even by root"),
    ],
)
def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path, make: Callable[[Path], Path], error: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AgentSettingsError, match=rf"--plugin-dir .*{error}"):
        PluginDirectory.take(make(tmp_path))


def test_a_directory_removed_below_its_mount_has_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount is still there, and nothing can be made in it."""
    with closing(PluginDirectory.take(tmp_path / "p")) as directory:
        directory.hold()
        (directory.path / ".nodedevice-agent.lock").unlink()

        def gone(*args: object) -> int:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))

        with monkeypatch.context() as mounted:
            mounted.setattr(os, "open", gone)
            problem = r"--plugin-dir .*No such file or directory; .*restart this pod"
            with pytest.raises(AgentSettingsError, match=problem):
                directory.hold()
        directory.hold()
        with pytest.raises(DirectoryServed):
            PluginDirectory.take(directory.path)
