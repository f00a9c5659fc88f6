"""Programs from a server on loopback that stands in for the projects' own: none is used whose checksum is another."""

import hashlib
import platform
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.build import published as published_module
from tests.cluster.build.binaries import find
from tests.cluster.build.cache import cache_folder
from tests.cluster.build.published import published
from tests.cluster.errors import BinaryError
from tests.cluster.processes.loopback import reach_loopback_directly
from tests.fakes.played_api.messages import Answer, Request
from tests.fakes.played_api.serving import serving

_PROGRAM = b"#!/bin/sh\necho the published one\n" + b"# filled up\n" * 20_000

pytestmark = pytest.mark.skipif(
    platform.machine() not in {"x86_64", "aarch64"}, reason="nothing is published for this machine"
)


class _Projects:
    """files: by address without `https://`."""

    date = address = ""
    connections = 0

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def publish(self, binary: str, described_as: bytes = _PROGRAM) -> str:
        """Puts a program there with its checksum, or with that of other content. Returns its address."""
        file = published(binary)
        assert file is not None
        checksum = hashlib.sha256(described_as).hexdigest()
        self.files |= {file.address: _PROGRAM, file.checksums: checksum.encode()}
        return file.address

    def answer(self, request: Request) -> Answer:
        content = self.files.get(request.path.removeprefix("/"))
        return Answer(404) if content is None else Answer(200, content)


@pytest.fixture
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Projects]:
    """They publish nothing yet. The cache is empty."""
    for name in ("KUBEBUILDER_ASSETS", "KUBERNETES", "BINARIES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    reach_loopback_directly()
    with serving(_Projects()) as server:
        monkeypatch.setenv("BINARIES_MIRROR", f"{server.address}/")
        yield server


def _kept() -> list[str]:
    return sorted(path.name for path in cache_folder().glob("bin/*/*"))


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
