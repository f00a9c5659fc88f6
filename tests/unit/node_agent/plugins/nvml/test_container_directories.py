"""Directories of containers: only those that were made here are removed, and only whole."""

import errno
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from nodedevice_agent.plugins.nvml.container_directories import ContainerDirectories

from tests.fakes.sockets import left_behind
from tests.unit.node_agent.plugins.nvml.sources import place

UID = "f320f827-2a71-486b-a551-28c650dbaf1e"
STATIC = "0" * 32
NAME = f"{UID}_main"
DIRECTORY = "/vgpu/containers"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    return tmp_path / "host" / "vgpu" / "containers"


@pytest.fixture
def directories(tmp_path: Path) -> ContainerDirectories:
    return ContainerDirectories(tmp_path / "state" / "records", str(tmp_path / "host") + "/")


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """A directory that is no container's, for its owner alone."""
    made = tmp_path / "precious"
    made.mkdir(0o700)
    return made


@pytest.mark.parametrize("uid", [UID, STATIC])
async def test_made_for_every_user_and_removed_with_all_that_is_in_it(
    directories: ContainerDirectories, host: Path, uid: str
) -> None:
    assert directories.make(DIRECTORY, uid, "main") == f"{DIRECTORY}/{uid}_main"
    made = host / f"{uid}_main"
    assert stat.S_IMODE(made.stat().st_mode) == 0o777
    (made / "deep" / "er").mkdir(parents=True)
    (made / "deep" / "x.cache").touch()
    await directories.keep({f"{uid}_main"})
    assert made.is_dir()
    await directories.keep(())
    assert list(host.iterdir()) == []
    await directories.keep(())


@pytest.mark.parametrize(
    ("uid", "container"),
    [("..", "main"), (UID, "../../etc"), (UID, ""), (UID, "a.b"), ("", "main"), (f"{UID}/x", "main"), (UID, "A")],
)
def test_a_name_of_another_form_is_never_made(directories: ContainerDirectories, uid: str, container: str) -> None:
    with pytest.raises(ValueError, match="is not a pod's UID"):
        directories.make(DIRECTORY, uid, container)


async def test_what_was_not_made_here_stays(directories: ContainerDirectories, host: Path) -> None:
    directories.make(DIRECTORY, UID, "main")
    others = [host / f"{UID}_other", host / "admin", host / f"{NAME}.ended2"]
    for other in others:
        other.mkdir()
    await directories.keep(())
    assert sorted(host.iterdir()) == sorted(others)


async def test_links_that_a_container_left_are_not_followed(
    directories: ContainerDirectories, host: Path, precious: Path
) -> None:
    (precious / "file").touch()
    directories.make(DIRECTORY, UID, "main")
    (host / NAME / "link").symlink_to(precious)
    await directories.keep(())
    assert not (host / NAME).exists()
    assert (precious / "file").exists()


async def test_a_link_in_place_of_a_directory_is_a_problem_and_not_followed(
    directories: ContainerDirectories, host: Path, precious: Path
) -> None:
    directories.make(DIRECTORY, UID, "main")
    (host / NAME).rmdir()
    (host / NAME).symlink_to(precious)
    with pytest.raises(OSError, match="cannot remove"):
        await directories.keep(())
    assert precious.is_dir()


@pytest.mark.parametrize("target", ["/vgpu/other", "../../etc/" + NAME, "/"])
async def test_a_record_that_names_another_path_is_ignored(
    directories: ContainerDirectories, host: Path, tmp_path: Path, target: str
) -> None:
    other = tmp_path / "host" / "vgpu" / "other"
    for folder in (host, other):
        folder.mkdir(parents=True)
    place(tmp_path, f"state/records/{NAME}").symlink_to(target)
    await directories.keep(())
    assert other.is_dir()


def test_a_link_that_another_user_left_there(directories: ContainerDirectories, host: Path, precious: Path) -> None:
    host.parent.mkdir(parents=True)
    (host.parent / "lock").symlink_to(precious)
    with pytest.raises(OSError, match="lock"):
        directories.make_shared("/vgpu/lock")
    assert stat.S_IMODE(precious.stat().st_mode) == 0o700


async def test_a_removal_that_was_cut_off_is_finished(directories: ContainerDirectories, host: Path) -> None:
    directories.make(DIRECTORY, UID, "main")
    (host / NAME).rename(host / f"{NAME}.ended")
    await directories.keep(())
    assert list(host.iterdir()) == []


async def test_a_restart_finds_them_also_where_the_setting_was_changed(
    directories: ContainerDirectories, host: Path, tmp_path: Path
) -> None:
    directories.make(DIRECTORY, UID, "main")
    later = ContainerDirectories(tmp_path / "state" / "records", str(tmp_path / "host"))
    later.make("/elsewhere", UID, "second")
    await later.keep({f"{UID}_second"})
    assert not os.listdir(host)
    assert (tmp_path / "host" / "elsewhere" / f"{UID}_second").is_dir()


def deep(top: Path, levels: int) -> None:
    """Deeper than a path may be long, as a process in the container makes it."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        (Path(f"/proc/self/fd/{here}") / "file").touch()
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def made_in(top: Path, *folders: str, file: str = "") -> None:
    for name in folders:
        (top / name).mkdir(parents=True)
    if file:
        (top / file).touch()


def pipe_and_socket(top: Path) -> None:
    os.mkfifo(top / "pipe")
    left_behind(top / "s")


LEFT: Final[dict[str, Callable[[Path], object]]] = {
    "1,200 levels": lambda top: deep(top, 1200),
    "more entries than are read at once": lambda top: [(top / str(number)).write_text("") for number in range(2100)],
    "names that removal itself would choose": lambda top: made_in(top, *(f"{n}.ended/0.ended/x" for n in range(3))),
    "a file of such a name": lambda top: made_in(top, "a/b/c", file="0.ended"),
    "names that are no UTF-8": lambda top: made_in(top, os.fsdecode(b"\xff\xfe") + "/x"),
    "a pipe and a socket": pipe_and_socket,
}


@pytest.mark.parametrize("leave", LEFT.values(), ids=LEFT.keys())
async def test_whatever_a_container_leaves_is_removed(
    directories: ContainerDirectories, host: Path, leave: Callable[[Path], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    directories.make(DIRECTORY, UID, "main")
    monkeypatch.chdir(host / NAME)
    leave(Path())
    try:
        await directories.keep(())
        assert list(host.iterdir()) == []
    finally:
        # pytest could not remove it either
        subprocess.run(["rm", "-rf", *host.iterdir()], check=True)


@pytest.mark.parametrize("call", ["rename", "open", "unlink", "rmdir"])
async def test_one_that_cannot_be_removed_keeps_no_other(
    directories: ContainerDirectories, host: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Such as one with a mount in it, or on a disk that fails."""
    names = [f"{UID}_{container}" for container in ("bad", "good", "other")]
    for name in names:
        directories.make(DIRECTORY, *name.split("_"))
        (host / name / "file").touch()
    real = getattr(os, call)

    def fails(path: Any, *args: Any, **kwargs: Any) -> Any:
        where = os.readlink(f"/proc/self/fd/{kwargs['dir_fd']}") if kwargs.get("dir_fd") is not None else str(path)
        if "_bad" in where:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return real(path, *args, **kwargs)

    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(OSError, match="_bad"):
            await directories.keep(())
    assert [entry.name.removesuffix(".ended") for entry in host.iterdir()] == [names[0]]
    await directories.keep(())
    assert list(host.iterdir()) == []
