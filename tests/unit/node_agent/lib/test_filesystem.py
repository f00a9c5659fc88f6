"""What a directory of others may hold: names that are too long or no UTF-8, and files that cannot be looked at."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from nodedevice_agent.lib import filesystem

from tests.fakes.sockets import left_behind


def test_a_socket_is_one_and_a_link_to_it_where_links_are_followed(tmp_path: Path) -> None:
    left_behind(tmp_path / "s")
    (tmp_path / "link").symlink_to(tmp_path / "s")
    (tmp_path / "file").touch()
    found = {name: filesystem.is_socket(tmp_path / name) for name in ("s", "link", "file", "none")}
    assert found == {"s": True, "link": True, "file": False, "none": False}
    assert not filesystem.is_socket(tmp_path / "link", follow_symlinks=False)


@pytest.mark.parametrize("name", ["n" * 300, "n/" * 3000, "nul\0", "\udcff"], ids=["long", "deep", "NUL", "no UTF-8"])
def test_names_that_nothing_can_have(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    assert not filesystem.is_socket(path)
    assert not filesystem.is_directory(path)
    assert filesystem.file_identity(path) is None


def test_a_socket_has_a_path_of_so_many_bytes() -> None:
    longest = "/" + "x" * (filesystem.MAX_PATH_BYTES - 3) + "ü"
    assert not filesystem.is_too_long(Path(longest))
    assert filesystem.is_too_long(Path(longest + "x"))


def test_a_bounded_number_of_unanswered_questions_is_kept() -> None:
    with filesystem.unanswered() as found:
        for number in range(100):
            filesystem.note_unanswered(f"/{number}", OSError(errno.EIO, "Input/output error"))
        filesystem.note_unanswered("/none", OSError(errno.ENOENT, "No such file or directory"))
    assert 0 < len(found) < 100
    assert "/none" not in found


@pytest.mark.parametrize(
    ("function", "ask"),
    [
        ("stat", filesystem.is_socket),
        ("stat", filesystem.is_directory),
        ("lstat", filesystem.file_identity),
        ("listdir", lambda path: filesystem.names_in(str(path))),
        ("readlink", lambda path: filesystem.link_target(str(path))),
        ("lstat", lambda path: filesystem.is_there(str(path))),
    ],
    ids=["socket", "directory", "identity", "names", "link", "anything"],
)
def test_a_question_that_has_no_answer_is_kept_with_its_path(
    function: str, ask: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(path: object, **_: object) -> object:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, function, fails)
    with filesystem.unanswered() as found:
        ask(tmp_path)
    assert found == {str(tmp_path): "Input/output error"}
    found.clear()
    # nobody asks any more
    ask(tmp_path)
    assert not found


@pytest.mark.parametrize(
    ("name", "target", "is_there"),
    [("file", "", True), ("link", "no", True), ("none", "", False), ("file/below", "", False), ("nul\0", None, False)],
)
def test_what_is_there_and_where_a_link_leads(tmp_path: Path, name: str, target: str | None, is_there: bool) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("no")
    path = f"{tmp_path}/{name}"
    with filesystem.unanswered() as found:
        assert filesystem.is_there(path) is is_there
        if target is not None:
            assert filesystem.link_target(path) == target
    assert not found


def test_names_that_are_no_utf8_are_not_listed(tmp_path: Path) -> None:
    for name in (b"plain", "größe".encode(), b"\xff", b"a\xfe\xff"):
        (tmp_path / os.fsdecode(name)).touch()
    assert filesystem.names_in(str(tmp_path)) == ["größe", "plain"]
