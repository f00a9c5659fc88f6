"""`kubectl-nodedevice.pyz`: the same bytes twice; it unpacks itself once where that is safe, and runs in any case."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest

from hack.release import zipapp

_ROOT: Final = Path(__file__).parents[3]
Prepare = Callable[[Path], Mapping[str, str]]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("zipapp") / zipapp.NAME
    zipapp.write(_ROOT, made)
    return made


def _run(archive: Path, environment: Mapping[str, str], *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", str(archive), *(arguments or ("--version",))]
    return subprocess.run(
        command, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, check=False
    )


_WHERE: Final = """
import runpy, sys
sys.path[0:0] = [sys.argv[1]]
sys.argv = ["kubectl-nodedevice", "--version"]
try:
    runpy.run_path(sys.path[0], run_name="__main__")
except SystemExit:
    import kubectl_nodedevice
    print(kubectl_nodedevice.__file__)
"""


def _where(archive: Path, environment: Mapping[str, str]) -> str:
    """From where the program's own modules come."""
    command = [sys.executable, "-I", "-c", _WHERE, str(archive)]
    given = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(command, env=given, capture_output=True, text=True, check=True).stdout.splitlines()[-1]


def _cache(home: Path) -> Path:
    return home / ".cache/nodedevice/kubectl"


def test_two_builds_give_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    zipapp.write(_ROOT, tmp_path / "again.pyz")
    assert (tmp_path / "again.pyz").read_bytes() == archive.read_bytes()


def test_it_unpacks_itself_once(archive: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    assert _run(archive, home).stdout == "0.1.0\n"
    [folder] = _cache(tmp_path).iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}
    assert any(file.suffix == ".pyc" for file in before), "it is not compiled"
    assert _where(archive, home).startswith(str(folder))
    assert before == {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_each_command_has_its_help(archive: Path, tmp_path: Path) -> None:
    """What is left out of the libraries is not needed."""
    from kubectl_nodedevice.program import COMMANDS

    for command in COMMANDS:
        done = _run(archive, {"HOME": str(tmp_path)}, command, "--help")
        assert done.returncode == 0, done.stderr
    assert "there is no kubeconfig" in _run(archive, {"HOME": str(tmp_path)}, "devices").stderr


def _no_home(home: Path) -> Mapping[str, str]:
    return {"HOME": ""}


def _not_writable(home: Path) -> Mapping[str, str]:
    return {"HOME": "/proc"}


def _a_link_in_its_place(home: Path) -> Mapping[str, str]:
    _cache(home).parent.mkdir(parents=True)
    (home / "elsewhere").mkdir()
    _cache(home).symlink_to(home / "elsewhere")
    return {"HOME": str(home)}


def _open_to_all(home: Path) -> Mapping[str, str]:
    _cache(home).mkdir(parents=True)
    _cache(home).chmod(0o777)
    return {"HOME": str(home)}


@pytest.mark.parametrize("prepare", [_no_home, _not_writable, _a_link_in_its_place, _open_to_all])
def test_it_runs_from_the_zip_where_the_cache_is_not_safe(archive: Path, tmp_path: Path, prepare: Prepare) -> None:
    environment = prepare(tmp_path)
    assert _run(archive, environment).stdout == "0.1.0\n"
    assert _where(archive, environment).startswith(str(archive))


def test_a_folder_that_others_can_write_is_not_used(archive: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    _run(archive, home)
    [folder] = _cache(tmp_path).iterdir()
    folder.chmod(0o777)
    assert _where(archive, home).startswith(str(archive))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user")
def test_another_users_folders_are_not_used(archive: Path, tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path)}
    os.chown(tmp_path, 12345, 12345)
    assert _where(archive, home).startswith(str(archive))
    assert not (tmp_path / ".cache").exists(), "root left a folder in another's home"


def test_another_release_that_nobody_uses_goes(archive: Path, tmp_path: Path) -> None:
    old, new = _cache(tmp_path) / "old-3.11", _cache(tmp_path) / "new-3.11"
    for folder in (old, new):
        folder.mkdir(parents=True)
    _cache(tmp_path).chmod(0o700)
    os.utime(old, (0, 0))
    _run(archive, {"HOME": str(tmp_path)})
    assert not old.exists()
    assert new.exists()


def test_it_starts_by_itself_as_a_plugin_of_kubectl(archive: Path, tmp_path: Path) -> None:
    """Under the name by which kubectl finds it, and with nothing of the folder that it is started in."""
    plugin = tmp_path / "kubectl-nodedevice"
    plugin.write_bytes(archive.read_bytes())
    plugin.chmod(0o755)
    (tmp_path / "click.py").write_text("raise SystemExit('of this folder')")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {"PATH": path, "HOME": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [str(plugin), "--version"], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("0.1.0\n", "")
