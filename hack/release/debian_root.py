"""The base of the images: Debian's packages for one architecture, unpacked and never executed: any machine makes any
architecture.

apt keeps its lists in a folder of ours: neither the machine's packages nor its architectures change.
/var/lib/dpkg/status lists the unpacked packages, as scanners expect.
"""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from hack.release.errors import ReleaseError

# like the base of the tests' images: gRPC needs libstdc++
_PACKAGES = ("base-files", "ca-certificates", "libstdc++6", "python3", "python3-pip")
_REMEDY = "release on a Debian whose apt reaches its mirror"


def make(root: Path, architecture: str) -> Path:
    """Fill a new folder with a root file system of `amd64` or `arm64`. Returns it."""
    apt = _Apt(root.with_name(f"{root.name}-apt"), architecture)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    status = []
    for archive in apt.fetch(_PACKAGES):
        unpack = f"dpkg-deb --fsys-tarfile '{archive}' | tar -xp --keep-directory-symlink -C '{root}'"
        run(["sh", "-c", unpack], _REMEDY)
        package, *fields = run(["dpkg-deb", "-f", str(archive)], _REMEDY).splitlines()
        status.append("\n".join([package, "Status: install ok installed", *fields]) + "\n")
    (root / "var/lib/dpkg").mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").write_text("\n".join(status))
    (root / "tmp").mkdir(mode=0o1777, exist_ok=True)
    bundle = b"".join(file.read_bytes() for file in sorted((root / "usr/share/ca-certificates").rglob("*.crt")))
    (root / "etc/ssl/certs/ca-certificates.crt").write_bytes(bundle)
    shutil.rmtree(apt.folder)
    return root


class _Apt:
    """apt for an architecture, with lists and a cache of its own, and an empty status."""

    def __init__(self, folder: Path, architecture: str) -> None:
        self.folder = folder
        for name in ("state/lists/partial", "cache/archives/partial", "packages"):
            (folder / name).mkdir(parents=True)
        (folder / "state/status").touch()
        self._command = ["apt-get"]
        for option in (
            "APT::Sandbox::User=",
            f"Dir::State={folder}/state",
            f"Dir::State::status={folder}/state/status",
            f"Dir::Cache={folder}/cache",
            f"APT::Architecture={architecture}",
            f"APT::Architectures={architecture}",
        ):
            self._command += ["-o", option]

    def fetch(self, packages: Sequence[str]) -> list[Path]:
        """Download packages with all their dependencies. Returns the archives, sorted by name."""
        # without lists apt warns and ends with 0
        run([*self._command, "-o", "APT::Update::Error-Mode=any", "update", "-qq"], _REMEDY)
        plan = run([*self._command, "install", "-s", "-y", "--no-install-recommends", *packages], _REMEDY)
        lines = (line.split() for line in plan.splitlines() if line.startswith("Inst "))
        chosen = sorted(f"{words[1]}={words[2].lstrip('(')}" for words in lines)
        run([*self._command, "download", "-qq", *chosen], _REMEDY, self.folder / "packages")
        return sorted((self.folder / "packages").glob("*.deb"))


def run(command: Sequence[str], remedy: str, folder: Path | None = None) -> str:
    """Run a program and return its output. Raises ReleaseError with the end of its error output."""
    try:
        done = subprocess.run(
            command, cwd=folder, env={**os.environ, "LC_ALL": "C"}, check=False, capture_output=True, text=True
        )
    except OSError as exc:
        raise ReleaseError(f"{command[0]} does not run here ({exc.strerror})", remedy) from exc
    if done.returncode != 0:
        raise ReleaseError(
            f"{Path(command[0]).name} failed ({' '.join(done.stderr.strip().splitlines()[-2:])})", remedy
        )
    return done.stdout
