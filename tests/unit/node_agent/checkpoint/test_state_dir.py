"""One agent at a time in a state directory, for as long as it lives and no longer."""

import errno
import os
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.state_dir import held, make
from nodedevice_agent.errors import SettingsError, StateDirectoryUsed


def test_only_root_may_write(tmp_path: Path) -> None:
    make(tmp_path / "a/b")
    make(tmp_path / "a/b")
    assert (tmp_path / "a/b").stat().st_mode & 0o027 == 0


def test_a_second_agent_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    with held(tmp_path):
        with pytest.raises(StateDirectoryUsed, match="--state-dir of its own") as refused, held(tmp_path):
            pass
        assert refused.value.directory == str(tmp_path)
    with held(tmp_path):
        pass


def test_two_directories_are_two(tmp_path: Path) -> None:
    for name in "ab":
        make(tmp_path / name)
    with held(tmp_path / "a"), held(tmp_path / "b"):
        pass


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"--state-dir .*file/x cannot be used: Not a directory"):
        make(tmp_path / "file/x")


def test_a_read_only_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_only(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", read_only)
    with pytest.raises(SettingsError, match="cannot be used: Read-only file system; make it writable"), held(tmp_path):
        pass
