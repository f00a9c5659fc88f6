"""Programs from a server on loopback that stands in for the projects' own; else a stand-in for Go builds."""

import hashlib
import io
import json
import os
import platform
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from hack.cluster.build import published as published_module
from hack.cluster.build.binaries import find
from hack.cluster.build.cache import cache_folder
from hack.cluster.build.published import published
from hack.cluster.errors import BinaryError
from hack.cluster.processes.loopback import reach_loopback_directly

_PROGRAM = b"#!/bin/sh\necho the published one\n" + b"# filled up\n" * 20_000
_GO = """\
#!/bin/sh
[ "$1" = env ] && echo go1.99.1 && exit
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\\necho the built one\\n' > "$2"; chmod +x "$2"
"""

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "aarch64"}, reason="nothing is published for this machine"
)


class _Projects(ThreadingHTTPServer):
    """files: by address without `https://`. cut: those whose first answer ends in the middle. ranges: as asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.cut: set[str] = set()
        self.ranges: list[str] = []

    def publish(self, binary: str, content: bytes = _PROGRAM, described_as: bytes | None = None) -> str:
        """Puts a program there with its checksum, or with that of other content. Returns its address."""
        file = published(binary)
        assert file is not None
        packed = _archive(file.member, content) if file.member else content
        checksum = hashlib.sha256(described_as or packed).hexdigest()
        asset = {"name": file.file_name, "digest": f"sha256:{checksum}"}
        others = {"name": "another", "digest": f"sha256:{'0' * 64}"}
        form: dict[str, Any] = {
            "kwok": json.dumps({"assets": [others, asset]}),
            "etcd": f"{'0' * 64}  another\n{checksum}  {file.file_name}\n",
            "helm3": f"{checksum}  {file.file_name}\n",
            "helm": f"{checksum}  {file.file_name}\n",
        }
        self.files |= {file.address: packed, file.checksums: str(form.get(binary, checksum)).encode()}
        return file.address


class _Handler(BaseHTTPRequestHandler):
    server: _Projects

    def do_GET(self) -> None:
        address = self.path.removeprefix("/")
        content = self.server.files.get(address)
        if content is None:
            self.send_error(404)
            return
        asked = self.headers.get("Range")
        begin = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        self.server.ranges += [asked] if asked else []
        self.send_response(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = len(content) // 2 if address in self.server.cut else len(content)
        self.server.cut.discard(address)
        self.wfile.write(content[begin:end])

    def log_message(self, *_: object) -> None:
        pass


def _archive(member: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        entry = tarfile.TarInfo(member)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Projects]:
    """They publish nothing yet. The cache is empty; Go is on PATH."""
    for name in ("KUBEBUILDER_ASSETS", "KUBERNETES", "BINARIES"):
        monkeypatch.delenv(name, raising=False)
    go = tmp_path / "bin" / "go"
    go.parent.mkdir()
    go.write_text(_GO)
    go.chmod(0o755)
    monkeypatch.setenv("PATH", f"{go.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reach_loopback_directly()
    with _Projects() as server:
        monkeypatch.setenv("BINARIES_MIRROR", f"http://127.0.0.1:{server.server_port}/")
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def _said(path: Path) -> str:
    return subprocess.run([path], check=True, capture_output=True, text=True).stdout


def _kept() -> list[str]:
    return sorted(path.name for path in cache_folder().glob("bin/*/*"))


@pytest.mark.parametrize("binary", ["kube-apiserver", "kubectl", "etcd", "helm", "helm3", "kwok"])
def test_what_is_published_is_downloaded(projects: _Projects, binary: str) -> None:
    address = projects.publish(binary)
    lines: list[str] = []
    path = find([binary], lines.append)[binary]
    assert _said(path) == "the published one\n"
    assert _kept() == [binary]
    assert f"downloading from {address.split('/')[0]}" in lines[0]
    assert lines[-1].endswith("downloaded, checksum verified")


def test_a_wrong_checksum_is_refused(projects: _Projects) -> None:
    projects.publish("kubectl", described_as=b"something else")
    with pytest.raises(BinaryError, match=r"is the right one: it is not used\n.*BINARIES=build"):
        find(["kubectl"])
    assert _kept() == []


def test_a_pinned_checksum_counts_more_than_the_published_one(
    projects: _Projects, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = projects.publish("kubectl")
    pins = tmp_path / "checksums.txt"
    pins.write_text(f"# comment\n{'1' * 64}  {address}\n")
    monkeypatch.setattr(published_module, "_PINNED", pins)
    with pytest.raises(BinaryError, match=f"{'1' * 64} is the right one"):
        find(["kubectl"])


def test_a_cut_download_goes_on_where_it_ended(projects: _Projects) -> None:
    address = projects.publish("kubectl")
    projects.cut.add(address)
    lines: list[str] = []
    assert _said(find(["kubectl"], lines.append)["kubectl"]) == "the published one\n"
    assert projects.ranges == [f"bytes={len(_PROGRAM) // 2}-"]
    assert any("cut off after" in line for line in lines)


def test_what_nobody_hands_out_is_built(projects: _Projects) -> None:
    projects.publish("kubectl")
    lines: list[str] = []
    found = find(["kubectl", "etcd", "kwok"], lines.append)
    assert [_said(found[name]) for name in found] == ["the published one\n", "the built one\n", "the built one\n"]
    assert any("etcd" in line and "to be built" in line and "answered 404" in line for line in lines)
    assert any(line.startswith("building etcd, kwok into") for line in lines)


def test_no_answer_means_a_build(projects: _Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINARIES_MIRROR", "http://127.0.0.1:1")
    lines: list[str] = []
    assert _said(find(["kubectl"], lines.append)["kubectl"]) == "the built one\n"
    assert "to be built: http://127.0.0.1:1/dl.k8s.io/release/" in lines[0]


def test_a_build_can_be_asked_for(projects: _Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    projects.publish("kubectl")
    monkeypatch.setenv("BINARIES", "build")
    assert _said(find(["kubectl"])["kubectl"]) == "the built one\n"


def test_a_download_can_be_insisted_on(projects: _Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINARIES", "download")
    with pytest.raises(BinaryError, match=r"could not be downloaded: .* answered 404\n.*BINARIES_MIRROR"):
        find(["kubectl"])
    assert _kept() == []


def test_another_word_is_refused(projects: _Projects, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BINARIES", "guess")
    with pytest.raises(BinaryError, match="guess is neither build nor download"):
        find(["kubectl"])
