"""The images of a release: both architectures in each archive, and what the SBOMs list is what is in them."""

import json
import os
import shutil
import struct
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.chart import CHART

_VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text())["version"]
_MACHINES = {"amd64": 62, "arm64": 183}  # ELF's e_machine
_PROGRAMS = ("nodedevice-agent", "nodedevice-operator")


@dataclass(frozen=True)
class Unpacked:
    config: dict[str, Any]
    root: Path


@pytest.fixture(scope="module")
def unpacked(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Unpacked]:
    """Each image by program and architecture, unpacked from its archive."""
    found = {}
    for program in _PROGRAMS:
        folder = tmp_path_factory.mktemp(program)
        with tarfile.open(dist / f"{program}-{_VERSION}.oci.tar") as archive:
            archive.extractall(folder, filter="data")
        (named,) = json.loads((folder / "index.json").read_text())["manifests"]
        for entry in _blob(folder, named)["manifests"]:
            manifest = _blob(folder, entry)
            root = folder / entry["platform"]["architecture"]
            root.mkdir()
            for layer in manifest["layers"]:
                subprocess.run(["tar", "-xzf", _path(folder, layer), "-C", root], check=True)
            found[program, root.name] = Unpacked(_blob(folder, manifest["config"]), root)
    return found


def _path(folder: Path, descriptor: dict[str, Any]) -> Path:
    return folder / "blobs" / str(descriptor["digest"]).replace(":", "/")


def _blob(folder: Path, descriptor: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(_path(folder, descriptor).read_text())
    return content


def test_each_archive_has_both_architectures_and_only_their_programs(
    unpacked: dict[tuple[str, str], Unpacked],
) -> None:
    assert set(unpacked) == {(program, architecture) for program in _PROGRAMS for architecture in _MACHINES}
    for (_, architecture), image in unpacked.items():
        assert image.config["architecture"] == architecture
        libraries = [*image.root.rglob("opt/nodedevice/**/*.so"), image.root / "usr/bin/python3.11"]
        assert len(libraries) > 3
        for library in libraries:
            assert struct.unpack_from("<H", library.read_bytes(), 18)[0] == _MACHINES[architecture], library


def test_sboms_list_what_the_images_databases_list(dist: Path, unpacked: dict[tuple[str, str], Unpacked]) -> None:
    for (program, architecture), image in unpacked.items():
        bill = json.loads((dist / f"{program}-{_VERSION}-{architecture}.cdx.json").read_text())
        listed = {(entry["purl"].split("/")[0], entry["name"], entry["version"]) for entry in bill["components"]}
        query = ["dpkg-query", f"--admindir={image.root}/var/lib/dpkg", "-W", "-f=${Package} ${Version}\n"]
        packages = subprocess.run(query, check=True, capture_output=True, text=True).stdout.splitlines()
        debian = {("pkg:deb", *line.split()) for line in packages}
        assert len(debian) > 30
        assert debian == {entry for entry in listed if entry[0] == "pkg:deb"}
        folders = (path.name.removesuffix(".dist-info") for path in image.root.rglob("opt/nodedevice/*.dist-info"))
        installed = {tuple(name.lower().replace("_", "-").rsplit("-", 1)) for name in folders}
        # the operator's image has the command for people, too
        also = ("kubectl-nodedevice",) if program == "nodedevice-operator" else ()
        ours = {(name, _VERSION) for name in ("nodedevice-api", "nodedevice-common", "nodedevice-kube", program, *also)}
        python = {(name.lower().replace("_", "-"), version) for kind, name, version in listed if kind == "pkg:pypi"}
        assert installed | ours == python


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or os.uname().machine != "x86_64", reason="chroot needs root, on amd64")
@pytest.mark.parametrize("program", _PROGRAMS)
def test_programs_start_from_their_byte_code(unpacked: dict[tuple[str, str], Unpacked], program: str) -> None:
    done = _started(unpacked[program, "amd64"], "--help")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Usage:" in done.stdout
    module = program.replace("-", "_")
    assert f"# /opt/nodedevice/{module}/__pycache__/" in done.stderr
    # without quotes: compiled from the source just now
    assert f"# code object from /opt/nodedevice/{module}/" not in done.stderr


def _started(image: Unpacked, *arguments: str) -> subprocess.CompletedProcess[str]:
    config = image.config["config"]
    environ = {**dict(pair.split("=", 1) for pair in config["Env"]), "PYTHONVERBOSE": "1"}
    start = [shutil.which("chroot") or "chroot", str(image.root), *config["Entrypoint"], *arguments]
    return subprocess.run(start, env=environ, capture_output=True, text=True, check=False)
