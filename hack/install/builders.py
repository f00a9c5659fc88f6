"""Builders of the images: docker, podman or buildah from the Dockerfiles, or the release's own way from Debian's
packages.

The choice is pure; each builder's archive is an OCI archive, like the release's.
"""

import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.install import commands
from hack.install.errors import InstallError
from hack.release.images import ARCHITECTURES

DEBIAN: Final = "debian"
PROGRAMS: Final = ("docker", "podman", "buildah")
_REMEDY: Final = "let it reach the registry of its base image, or build without it by BUILDER=debian"
_APT: Final = ("apt-get", "dpkg-deb")


@dataclass(frozen=True)
class Facts:
    """answering: those of PROGRAMS that are installed and work. has_apt: Debian's packages can be fetched. architecture:
    as in a Node.
    """

    answering: tuple[str, ...]
    has_apt: bool
    architecture: str


def facts() -> Facts:
    answering = (name for name in PROGRAMS if shutil.which(name) and commands.attempt([name, "info"]).returncode == 0)
    names = {machine: architecture for architecture, machine in ARCHITECTURES.items()}
    own = names.get(platform.machine(), platform.machine())
    return Facts(tuple(answering), all(shutil.which(program) for program in _APT), own)


def choose(wanted: str, architectures: Sequence[str], machine: Facts) -> tuple[str, ...]:
    """The ways to build for these architectures, best first. wanted: BUILDER, which allows only that one. Raises
    InstallError.

    A builder makes images of this machine's architecture; for others it needs an emulator, and comes after Debian's
    packages.
    """
    if wanted and wanted not in (*PROGRAMS, DEBIAN):
        raise InstallError(f"BUILDER={wanted} is unknown", f"name one of {', '.join((*PROGRAMS, DEBIAN))}")
    if wanted in PROGRAMS and wanted not in machine.answering:
        raise InstallError(f"BUILDER={wanted} does not respond", "start it or install it, or leave BUILDER out")
    builders = machine.answering[:1] if len(architectures) == 1 else ()
    packages = (DEBIAN,) if machine.has_apt else ()
    ways = (*builders, *packages) if list(architectures) == [machine.architecture] else (*packages, *builders)
    if wanted:
        ways = (wanted,) if wanted == DEBIAN or len(architectures) == 1 else ()
    if not ways:
        raise InstallError(
            f"nothing here builds images for {' and '.join(architectures)}",
            "install docker, podman or buildah, or use a Debian or Ubuntu, which needs none of them",
        )
    return ways


def words(way: str) -> str:
    """The way, in words for people."""
    return "of Debian's packages, as `make release` does" if way == DEBIAN else f"by {way}"


def build(builder: str, dockerfile: Path, tree: Path, name: str, architecture: str, archive: Path) -> None:
    """Build an image and write it as an OCI archive; it stays in no store of images. Raises InstallError."""
    label = f"org.opencontainers.image.version={name.rpartition(':')[2]}"
    options = ["--quiet", "--platform", f"linux/{architecture}", "--label", label, "-f", str(dockerfile), "-t", name]
    # fail now without a network, and not after three attempts
    options += [] if builder == "docker" else ["--retry=0"]
    commands.run([builder, "build", *options, str(tree)], f"{builder} build", remedy=_REMEDY)
    try:
        commands.run(
            [builder, *_saving(builder, name, archive)],
            f"{builder} {_saving(builder, name, archive)[0]}",
            remedy=_REMEDY,
        )
    finally:
        commands.attempt([builder, "rmi", name])


def _saving(builder: str, name: str, archive: Path) -> list[str]:
    if builder == "buildah":
        return ["push", "--quiet", name, f"oci-archive:{archive}:{name}"]
    form = ["--quiet", "--format=oci-archive"] if builder == "podman" else []
    return ["save", *form, "--output", str(archive), name]
