"""What krew gets: an archive whose program starts, and a manifest that names it."""

import hashlib
import re
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.release import krew, zipapp

ROOT = Path(__file__).parents[3]
SOURCE = "https://git.example.com/nodedevice"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("zipapp") / zipapp.NAME
    zipapp.write(ROOT, file)
    return file


def made(program: Path, folder: Path, source: str = SOURCE) -> tuple[dict[str, Any], Path]:
    folder.mkdir()
    krew.write(program, ROOT / "LICENSE", "0.1.0", source, folder)
    manifest = yaml.safe_load((folder / krew.MANIFEST).read_text())
    return manifest, folder / "kubectl-nodedevice-0.1.0.zip"


def test_the_manifest_names_the_archive_and_what_is_in_it(program: Path, tmp_path: Path) -> None:
    manifest, archive = made(program, tmp_path / "made")
    [platform] = manifest["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{SOURCE}/releases/download/v0.1.0/{archive.name}"
    assert {each["from"] for each in platform["files"]} == set(zipfile.ZipFile(archive).namelist())
    assert platform["bin"] in zipfile.ZipFile(archive).namelist()


def test_the_program_starts_where_krew_puts_it(program: Path, tmp_path: Path) -> None:
    """krew links bin as kubectl-nodedevice; modes are the archive's."""
    _, archive = made(program, tmp_path / "made")
    with zipfile.ZipFile(archive) as opened:
        modes = {each.filename: each.external_attr >> 16 & 0o777 for each in opened.infolist()}
        opened.extractall(tmp_path / "store")
    assert modes == {"kubectl-nodedevice": 0o755, "LICENSE": 0o644}
    file = tmp_path / "store/kubectl-nodedevice"
    file.chmod(0o755)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    link = tmp_path / "kubectl-nodedevice"
    link.symlink_to(file)
    python = Path(subprocess.run(["which", "python3"], check=True, capture_output=True, text=True).stdout.strip())
    shown = subprocess.run(
        [python, "-I", link, "--version"], check=True, capture_output=True, text=True, env=environment, timeout=120
    )
    assert re.search(r"\d+\.\d+", shown.stdout)
