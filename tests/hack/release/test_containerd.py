"""A release's archive in a containerd of its own: the commands of docs/releasing.md, and the wrong architecture."""

import os
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.build.binaries import find
from hack.cluster.processes.processes import Process
from hack.release import oci

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="containerd needs root")]

_NAME = "docker.io/library/nodedevice-agent"
_CONFIG = """version = 3
root = "{0}/root"
state = "{0}/state"
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime", "io.containerd.cri.v1.images", "io.containerd.nri.v1.nri",
]
[grpc]
  address = "{0}/socket"
"""


class _Ctr:
    def __init__(self, program: Path, socket: Path) -> None:
        self._command = [str(program), "--address", str(socket), "--namespace", "k8s.io", "images"]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*self._command, *arguments], capture_output=True, text=True, check=False)

    def names(self) -> set[str]:
        return set(self.run("ls", "-q").stdout.split())


@pytest.fixture
def ctr(tmp_path: Path) -> Iterator[_Ctr]:
    programs = find(["containerd", "ctr"])
    (tmp_path / "config.toml").write_text(_CONFIG.format(tmp_path))
    command = [str(programs["containerd"]), "--config", str(tmp_path / "config.toml")]
    containerd = Process("containerd", command, tmp_path / "log")
    containerd.start()
    try:
        client = _Ctr(programs["ctr"], tmp_path / "socket")
        containerd.wait_ready(lambda: client.run("ls").returncode == 0, 60)
        yield client
    finally:
        containerd.stop(30)


@pytest.fixture
def archive(tmp_path: Path) -> tuple[Path, str]:
    """An archive of a release's shape with one small file, and its digest."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/hello").write_text("hello\n")
    layer = oci.layer(tmp_path / "files", tmp_path / "layer.tar.gz", 0)
    path = tmp_path / "agent.oci.tar"
    return path, oci.write(path, "nodedevice-agent:0.1.0", {"amd64": [layer], "arm64": [layer]}, {}, 0)


def test_is_there_by_tag_and_by_the_charts_digest(ctr: _Ctr, archive: tuple[Path, str]) -> None:
    path, digest = archive
    done = ctr.run("import", str(path))
    assert done.returncode == 0, done.stderr
    done = ctr.run("tag", f"{_NAME}:0.1.0", f"{_NAME}@{digest}")
    assert done.returncode == 0, done.stderr
    assert ctr.names() == {f"{_NAME}:0.1.0", f"{_NAME}@{digest}"}


def test_another_architecture_is_refused(ctr: _Ctr, archive: tuple[Path, str], tmp_path: Path) -> None:
    assert ctr.run("import", str(archive[0])).returncode == 0
    (tmp_path / "mounted").mkdir()
    done = ctr.run("mount", "--platform", "linux/s390x", f"{_NAME}:0.1.0", str(tmp_path / "mounted"))
    assert done.returncode != 0
    assert "no match for platform in manifest" in done.stderr


def test_one_architecture_is_an_archive_of_dockers_too(ctr: _Ctr, tmp_path: Path) -> None:
    """As `docker load` of any version reads it: by manifest.json alone."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/hello").write_text("hello\n")
    layer = oci.layer(tmp_path / "files", tmp_path / "layer.tar.gz", 0)
    whole, bare = tmp_path / "whole.tar", tmp_path / "bare.tar"
    oci.write(whole, "localhost/nodedevice-agent:dev-1", {"amd64": [layer]}, {}, 0)
    with tarfile.open(whole) as archive, tarfile.open(bare, "w") as without_index:
        for entry in archive.getmembers():
            if entry.name not in ("index.json", "oci-layout"):
                without_index.addfile(entry, archive.extractfile(entry))
    done = ctr.run("import", str(bare))
    assert done.returncode == 0, done.stderr
    assert ctr.names() == {"localhost/nodedevice-agent:dev-1"}


def test_several_architectures_are_none(archive: tuple[Path, str]) -> None:
    """Docker would take the first, whatever the node is."""
    with tarfile.open(archive[0]) as files:
        assert "manifest.json" not in files.getnames()
