"""Debian's packages for machines: the host's emulator, and what a guest is made of. apt fetches and verifies them.

Needs root: an emulator is installed as any package is, and a root file system has owners.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cluster.errors import BinaryError

_PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86",
    "qemu-img": "qemu-utils",
    "mmdebstrap": "mmdebstrap",
    "depmod": "kmod",
    "mkfs.ext4": "e2fsprogs",
    "cpio": "cpio",
}
_SHOWN_LINES = 15


def why_not_here() -> str:
    """The missing parts for a machine here, in a few words; empty if complete."""
    if os.uname().machine != "x86_64":
        return f"machines are emulated for x86_64, and this is {os.uname().machine}"
    if os.geteuid() != 0:
        return "machines need root: taps, a bridge, and file systems with owners"
    if not Path("/dev/net/tun").exists():
        return "/dev/net/tun for the machines' network is missing"
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if missing and shutil.which("apt-get") is None:
        return f"{', '.join(missing)} is not here, nor is apt to install it: run on Debian"
    return ""


def install(progress: Callable[[str], None]) -> None:
    """Install the emulator and its tools, if missing. Raises BinaryError."""
    missing = sorted({package for program, package in _PROGRAMS.items() if shutil.which(program) is None})
    if missing:
        progress(f"machine: installing Debian's {', '.join(missing)}")
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing])


class Apt:
    """Debian's packages from this machine's apt; of another suite, with lists of its own and an empty status.

    suite: as trixie, of the same mirror; empty for the machine's own.
    """

    def __init__(self, suite: str = "", folder: Path | None = None) -> None:
        self._options: list[str] = []
        if suite:
            assert folder is not None
            self._options = _options_of(suite, folder)
            try:
                self._do("apt-get", "-o", "APT::Update::Error-Mode=any", "update", "-qq")
            except BinaryError:
                # without a network, as in the machines' own, reuse the lists that the cache was made from
                if not any((folder / "lists").glob("*Packages*")):
                    raise

    def kernel_package(self) -> str:
        """The package with the kernel itself, a dependency of the unversioned package. Raises BinaryError."""
        name = "linux-image-amd64"
        lines = self._do("apt-cache", "depends", name).splitlines()
        found = [line.split()[1] for line in lines if "Depends: linux-image" in line]
        if not found:
            raise BinaryError(name, "apt knows no kernel of it", _remedy())
        return found[0]

    def version_of(self, package: str) -> str:
        """The version that apt would fetch. Raises BinaryError."""
        shown = self._do("apt-cache", "show", "--no-all-versions", package)
        return next(line.split()[1] for line in shown.splitlines() if line.startswith("Version:"))

    def fetch(self, package: str, folder: Path) -> Path:
        """Unpack a package into `folder`, which is made; nothing is installed. Raises BinaryError."""
        folder.mkdir()
        self._do("apt-get", "download", "-qq", package, folder=folder)
        (archive,) = folder.glob("*.deb")
        run(["dpkg-deb", "-x", str(archive), str(folder / "unpacked")])
        archive.unlink()
        return folder / "unpacked"

    def _do(self, tool: str, *arguments: str, folder: Path | None = None) -> str:
        # as this user: apt's own user may not write into our folder
        return run([tool, "-o", "APT::Sandbox::User=", *self._options, *arguments], folder)


def debian_sources() -> Path:
    """apt's Debian sources of this machine, with its mirror. Raises BinaryError."""
    for path in (Path("/etc/apt/sources.list.d/debian.sources"), Path("/etc/apt/sources.list")):
        if path.exists() and path.read_text().strip():
            return path
    raise BinaryError("machine", "apt has no sources of Debian", _remedy())


def _options_of(suite: str, folder: Path) -> list[str]:
    for name in ("lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    sources = debian_sources()
    ours = folder / sources.name
    # the mirror has all suites under one address, with the suffixes -updates and -security
    ours.write_text(re.sub(r"\b(bookworm|trixie)\b", suite, sources.read_text()))
    options = {
        "Dir::Etc::SourceList": ours if ours.suffix == ".list" else "/dev/null",
        "Dir::Etc::SourceParts": folder if ours.suffix == ".sources" else "/dev/null",
        "Dir::State::Lists": folder / "lists",
        "Dir::State::Status": folder / "status",
        "Dir::Cache": folder / "cache",
    }
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def run(command: Sequence[str], folder: Path | None = None) -> str:
    """Run a tool and return its output. Raises BinaryError with the end of its error output."""
    try:
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
    except OSError as exc:
        raise BinaryError("machine", f"{command[0]}: {exc.strerror}", _remedy()) from exc
    if done.returncode != 0:
        shown = "\n".join((done.stderr or done.stdout).strip().splitlines()[-_SHOWN_LINES:])
        raise BinaryError("machine", f"{Path(command[0]).name} failed:\n{shown}", _remedy())
    return done.stdout


def _remedy() -> str:
    return "run `apt-get update` as root on a Debian that reaches its mirror, with 4 GB free where XDG_CACHE_HOME is"
