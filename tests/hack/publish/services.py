"""A registry and a Python package index of other people's, on this machine, with a user each: tests publish releases to them."""

import base64
import contextlib
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.build.binaries import find
from tests.cluster.processes.processes import Process, reserved_ports

USER, PASSWORD = "publisher", "secret"
_BCRYPT = "$2b$04$4hg4Dr7ovcx8jlNVyaoAXu5cmw4ooCmTwEMYw1Gf1cDR9nmBoL5Tm"
_APR1 = "$apr1$nodedevi$g1hWxPY9c5Ap4sSZIan/A0"
_READY_SECONDS = 60.0
_CONFIG = """version: 0.1
storage: {{filesystem: {{rootdirectory: {folder}/registry}}}}
http: {{addr: "{address}"}}
log: {{level: warn}}
"""
_AUTH = "auth: {{htpasswd: {{realm: test, path: {folder}/registry.htpasswd}}}}\n"


@dataclass(frozen=True)
class Service:
    """address: host and port."""

    address: str
    folder: Path

    def answer(self, path: str) -> str:
        """What it says to its user."""
        token = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        request = urllib.request.Request(f"http://{self.address}{path}", headers={"Authorization": f"Basic {token}"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())


@contextlib.contextmanager
def registry(folder: Path, port: int, *, with_user: bool = True) -> Iterator[Service]:
    """Debian's docker-registry. folder: an empty one. port: reserved for it. with_user: False lets everybody read and write."""
    (folder / "registry.htpasswd").write_text(f"{USER}:{_BCRYPT}\n")
    program = find(["docker-registry"])["docker-registry"]
    address = f"127.0.0.1:{port}"
    config = folder / "registry.yaml"
    config.write_text((_CONFIG + (_AUTH if with_user else "")).format(folder=folder, address=address))
    process = Process("docker-registry", [str(program), "serve", str(config)], folder / "registry.log")
    with _running(process, Service(address, folder), "/v2/") as service:
        yield service


@contextlib.contextmanager
def package_index(folder: Path) -> Iterator[Service]:
    """pypiserver; what it does not have itself it takes from nowhere."""
    (folder / "index.htpasswd").write_text(f"{USER}:{_APR1}\n")
    (folder / "packages").mkdir()
    program = Path(sys.executable).with_name("pypi-server")
    with reserved_ports(1) as (port,):
        command = [str(program), "run", "--interface", "127.0.0.1", "--port", str(port), "--disable-fallback"]
        command += ["--passwords", str(folder / "index.htpasswd"), "--authenticate", "update", str(folder / "packages")]
        process = Process("pypiserver", command, folder / "index.log")
        with _running(process, Service(f"127.0.0.1:{port}", folder), "/simple/") as service:
            yield service


@contextlib.contextmanager
def _running(process: Process, service: Service, path: str) -> Iterator[Service]:
    def answers() -> bool:
        try:
            service.answer(path)
        except urllib.error.URLError:
            return False
        return True

    process.start()
    try:
        process.wait_ready(answers, _READY_SECONDS)
        yield service
    finally:
        process.stop(10)
