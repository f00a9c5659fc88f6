"""What krew gets: an archive whose program may be executed, and a manifest that names it."""

import hashlib
import zipfile
from pathlib import Path

import yaml

from hack.release import krew, zipapp

ROOT = Path(__file__).parents[3]
SOURCE = "https://git.example.com/nodedevice"


def test_the_manifest_names_the_archive_and_what_is_in_it(tmp_path: Path) -> None:
    zipapp.write(ROOT, tmp_path / zipapp.NAME)
    krew.write(tmp_path / zipapp.NAME, ROOT / "LICENSE", "0.1.0", SOURCE, tmp_path)
    [platform] = yaml.safe_load((tmp_path / krew.MANIFEST).read_text())["spec"]["platforms"]
    archive = tmp_path / "kubectl-nodedevice-0.1.0.zip"
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"] == f"{SOURCE}/releases/download/v0.1.0/{archive.name}"
    with zipfile.ZipFile(archive) as opened:
        modes = {each.filename: each.external_attr >> 16 & 0o777 for each in opened.infolist()}
    assert modes == {"kubectl-nodedevice": 0o755, "LICENSE": 0o644}
    assert {each["from"] for each in platform["files"]} == modes.keys()
    assert platform["bin"] in modes
