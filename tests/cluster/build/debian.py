"""Takes programs that are not published as Go modules out of Debian's packages, at pinned versions.

apt fetches and verifies them by this machine's configuration; nothing is installed, and no root is needed.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import BinaryError

_TOOLS = ("apt-get", "dpkg-deb")


@dataclass(frozen=True)
class Package:
    """A Debian package, and its program's path in it."""

    name: str
    version: str
    path: str

    @property
    def key(self) -> str:
        """Name of the cache folder; an epoch's colon would break a search path."""
        return f"{self.name}-{self.version.replace(':', '_')}"


_PROMETHEUS = "2.42.0+ds-5+deb12u1"

PACKAGES = {
    "runc": Package("runc", "1.1.5+ds1-1+deb12u1", "usr/sbin/runc"),
    "busybox": Package("busybox-static", "1:1.35.0-4+deb12u1+b1", "bin/busybox"),
    "docker-registry": Package("docker-registry", "2.8.2+ds1-1", "usr/bin/docker-registry"),
    "prometheus": Package("prometheus", _PROMETHEUS, "usr/bin/prometheus"),
    "promtool": Package("prometheus", _PROMETHEUS, "usr/bin/promtool"),
    "strace": Package("strace", "6.1-0.1", "usr/bin/strace"),
}


def fetch(programs: Sequence[str], target: Callable[[str], Path], progress: Callable[[str], None]) -> None:
    """Fetch each program to `target(program)`, complete or not at all. Raises BinaryError with apt's message and a
    remedy.
    """
    for program in programs:
        package = PACKAGES[program]
        progress(f"{program}: fetching Debian's package {package.name} {package.version}")
        with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
            _download(program, package, Path(scratch))
            _keep(program, package, Path(scratch), target(program))


def _download(program: str, package: Package, folder: Path) -> None:
    missing = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if missing:
        raise BinaryError(program, f"{missing[0]} is not on this machine", _remedy(program))
    # as this user: apt's own user may not write into our folder
    _run(program, ["apt-get", "-o", "APT::Sandbox::User=", "download", f"{package.name}={package.version}"], folder)


def _keep(program: str, package: Package, folder: Path, target: Path) -> None:
    (archive,) = folder.glob("*.deb")
    _run(program, ["dpkg-deb", "-x", archive.name, "unpacked"], folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name(f".{program}.unfinished")
    shutil.copy2(folder / "unpacked" / package.path, unfinished)
    unfinished.replace(target)


def _run(program: str, command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise BinaryError(program, f"could not be fetched:\n{done.stderr.strip()}", _remedy(program))


def _remedy(program: str) -> str:
    return (
        "run `apt-get update` on a Debian whose mirror has that version, "
        f"or put a {program} of your own into a folder that KUBEBUILDER_ASSETS names"
    )
