"""The unit and the tmpfiles entry, as systemd reads them where it is there, and the command that writes them."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from nodedevice_agent.cli.run import main
from nodedevice_agent.cli.systemd import TMPFILES, UNIT


def _needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"systemd's {program} is missing here")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A file tree with both files and the program that the unit names."""
    program = tmp_path / "opt/nodedevice/bin/nodedevice-agent"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    done = CliRunner().invoke(main, ["systemd", "install", "--root", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.output.count("written: ") == 2
    return tmp_path


@_needs("systemd-analyze")
def test_systemd_finds_nothing_wrong_with_the_unit(root: Path) -> None:
    command = ["systemd-analyze", "verify", "--recursive-errors=no", f"--root={root}", UNIT]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@_needs("systemd-tmpfiles")
def test_directories_are_made(root: Path) -> None:
    command = ["systemd-tmpfiles", f"--root={root}", "--create", TMPFILES]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (root / "etc/nodedevice").stat().st_mode & 0o777 == 0o700
    assert (root / "var/lib/nodedevice").is_dir()


def test_what_is_shown_is_what_is_installed(root: Path) -> None:
    for name, folder in ((UNIT, "etc/systemd/system"), (TMPFILES, "etc/tmpfiles.d")):
        shown = CliRunner().invoke(main, ["systemd", "show", name]).output
        assert shown == (root / folder / name).read_text()


def test_it_names_the_program_that_it_was_called_as_and_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = "/opt/nodedevice/bin/nodedevice-agent"
    for called, named in (("/usr/local/bin/nodedevice-agent", "/usr/local/bin/nodedevice-agent"), ("/x/y.py", usual)):
        monkeypatch.setattr(sys, "argv", [called, "systemd"])
        # again: what is there is replaced
        done = CliRunner().invoke(main, ["systemd", "install", "--root", str(tmp_path)])
        assert done.output.splitlines()[-1].startswith("next: systemd-tmpfiles --create ")
        unit = (tmp_path / "etc/systemd/system" / UNIT).read_text()
        assert f"ExecStart={named} run" in unit


def test_a_tree_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "etc").write_text("no folder")
    done = CliRunner().invoke(main, ["systemd", "install", "--root", str(tmp_path)])
    assert done.exit_code == 1
    assert "etc/systemd/system" in done.output
    assert "run it as root" in done.output
