"""Device files of the host, looked at where every Linux machine has some."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri import host_devices as host_nodes
from nodedevice_agent.nri.host_devices import look_up


def test_a_device_file() -> None:
    (node,) = look_up("/dev/null")
    assert (node.below, node.type, node.major, node.minor, node.mode) == ("", "c", 1, 3, 0o666)


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/dev/zero")
    (node,) = look_up(str(tmp_path / "link"))
    assert (node.below, node.major, node.minor) == ("", 1, 5)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes device files, which needs root")
def test_a_directory_stands_for_the_device_files_below(tmp_path: Path) -> None:
    for name in "b", "a", "sub/c", "shm/d", "console":
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mknod(path, 0o20640, os.makedev(1, 3))
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("/dev/null")
    nodes = look_up(str(tmp_path))
    assert [node.below for node in nodes] == ["a", "b", "sub/c"]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="makes device files, which needs root")
def test_a_directory_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "MAX_NODES", 2)
    for name in "abc":
        os.mknod(tmp_path / name, 0o20640, os.makedev(1, 3))
    with pytest.raises(InjectionRefused, match=f"{tmp_path}.*more than 2"):
        look_up(str(tmp_path))
    (tmp_path / "a").unlink()
    assert len(look_up(str(tmp_path))) == 2


@pytest.mark.parametrize("names", [["a", "b", "c", "d"], ["one/a", "one/two/b"], ["a", "shm/b", "c", "e"]])
def test_what_is_no_device_is_not_walked_through_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setattr(host_nodes, "MAX_ENTRIES", 3)
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    with pytest.raises(InjectionRefused, match=f"{tmp_path} .*more than 3 entries"):
        look_up(str(tmp_path))


def test_no_more_of_a_huge_directory_is_read_than_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_nodes, "MAX_ENTRIES", 3)
    read = 0

    class Counted:
        def __enter__(self) -> Iterator[object]:
            return self._entries()

        def __exit__(self, *_: object) -> None: ...

        def _entries(self) -> Iterator[object]:
            nonlocal read
            while True:
                read += 1
                yield object()

    monkeypatch.setattr(os, "scandir", lambda _: Counted())
    with pytest.raises(InjectionRefused):
        look_up(str(tmp_path))
    assert read == 4


def test_a_deep_one(tmp_path: Path) -> None:
    """Deeper than Python calls."""
    below = [f"{tmp_path}{'/d' * depth}" for depth in range(1, 1200)]
    for path in below:
        os.mkdir(path)
    with pytest.raises(InjectionRefused, match="no device file"):
        look_up(str(tmp_path))
    # who removes the folder of a test goes down by calls
    for path in reversed(below):
        os.rmdir(path)


def test_what_is_no_device_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "empty").mkdir()
    for path in str(tmp_path / "none"), str(tmp_path / "file"), str(tmp_path / "loop"), str(tmp_path / "empty"):
        with pytest.raises(InjectionRefused) as caught:
            look_up(path)
        assert path in str(caught.value)


@pytest.mark.parametrize("path", ["", "dev/null", "/dev/nu\0ll", "-/dev/null"])
def test_only_absolute_paths(path: str) -> None:
    with pytest.raises(InjectionRefused, match="no absolute path"):
        look_up(path)
