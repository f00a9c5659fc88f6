"""Both images of the working tree as OCI archives in the user's cache folder, only for the cluster's architectures.

A tag depends on the image's content and is never that of a release: `dev-` and a part of a SHA-256 of the sources,
the way they are built and the architectures. Images that are pushed have another tag than images that are imported on
nodes: a kubelet that pulled an image asks a registry again for the same image under a name that no registry has.
"""

import json
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hack.install import builders, values
from hack.install.errors import InstallError
from hack.release import debian_root, images, oci
from hack.release.errors import ReleaseError
from tests.cluster.build import product_images
from tests.cluster.build.cache import cache_folder, lock

# the oldest time in all formats of archives; an image does not depend on the time of its build
_EPOCH: Final = 315532800
# number of archives of earlier sources, of each program
_KEPT: Final = 4
_BUILT_BY: Final = (debian_root, images, oci, builders)


@dataclass(frozen=True)
class Image:
    """An image of ours, in an archive once it is built."""

    program: str
    tag: str
    archive: Path

    @property
    def repository(self) -> str:
        return f"{values.LOADED}/{self.program}"

    @property
    def name(self) -> str:
        return f"{self.repository}:{self.tag}"

    @property
    def is_built(self) -> bool:
        return self.archive.exists()


@dataclass(frozen=True)
class Wanted:
    """The images' inputs besides their sources. builder: BUILDER, empty if not set."""

    architectures: tuple[str, ...]
    is_pushed: bool
    builder: str


def of_the_tree(wanted: Wanted) -> dict[str, Image]:
    """The images of the current sources, by program; built or not."""
    check(wanted)
    folder = cache_folder() / "install"
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as scratch:
        contexts = {program: product_images.context(program, Path(scratch) / program) for program in values.PARTS}
        tags = {program: _tag(context, wanted) for program, context in contexts.items()}
    return {program: Image(program, tag, folder / f"{program}-{tag}.oci.tar") for program, tag in tags.items()}


def check(wanted: Wanted) -> None:
    """Raises InstallError for an architecture without locked wheels."""
    unknown = [each for each in wanted.architectures if each not in images.ARCHITECTURES]
    if unknown:
        raise InstallError(
            f"the cluster has a node of the architecture {unknown[0]}, and images are made for "
            f"{' and '.join(images.ARCHITECTURES)}",
            "remove it, or keep agents away with `agents.nodeSelector` and install by Helm (docs/install.md)",
        )


def _tag(context: Path, wanted: Wanted) -> str:
    ways = "".join(Path(str(module.__file__)).read_text() for module in _BUILT_BY)
    return f"dev-{product_images.digest_of(context, repr(wanted), ways)}"


def build(found: Mapping[str, Image], wanted: Wanted, say: Callable[[str], None]) -> None:
    """Build the missing images. Raises InstallError with the error of the last way."""
    if all(image.is_built for image in found.values()):
        return
    folder = cache_folder() / "install"
    folder.mkdir(parents=True, exist_ok=True)
    # a lock of its own: it does not wait for builds of programs
    with lock(folder, say):
        for left in folder.glob(".build-*"):  # of a killed build
            shutil.rmtree(left, ignore_errors=True)
        missing = [image for image in found.values() if not image.is_built]
        if missing:
            with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
                _build(missing, wanted, Path(scratch), say)
        for program in found:
            _forget_old(program, folder)


def _build(missing: Sequence[Image], wanted: Wanted, scratch: Path, say: Callable[[str], None]) -> None:
    """Build the images by the first way that works."""
    ways = builders.choose(wanted.builder, wanted.architectures, builders.facts())
    for number, way in enumerate(ways):
        trees = scratch / way
        for image in missing:
            product_images.context(image.program, trees / image.program)
        try:
            say(f"{' and '.join(image.program for image in missing)}: built {builders.words(way)}")
            if way == builders.DEBIAN:
                _of_debian(missing, wanted.architectures, trees)
            else:
                _by_program(way, missing, wanted.architectures[0], trees)
            return
        except (InstallError, ReleaseError) as exc:
            if number + 1 == len(ways):
                raise
            say(f"{exc}; trying another way")


def _of_debian(missing: Sequence[Image], architectures: Sequence[str], trees: Path) -> None:
    roots = trees / "roots"
    bases = images.bases(roots, architectures, _EPOCH)
    for image in missing:
        unfinished = trees / image.archive.name
        images.assemble(trees / image.program, image.program, image.name, unfinished, bases, roots, _EPOCH)
        unfinished.replace(image.archive)


def _by_program(builder: str, missing: Sequence[Image], architecture: str, trees: Path) -> None:
    for image in missing:
        tree, unfinished = trees / image.program, trees / image.archive.name
        dockerfile = tree / product_images.PROGRAMS[image.program]
        builders.build(builder, dockerfile, tree, image.name, architecture, unfinished)
        digest(unfinished)
        unfinished.replace(image.archive)


def digest(archive: Path) -> str:
    """The digest under which runtimes and registries know the image of an OCI archive. Raises InstallError for any other
    file.
    """
    try:
        with tarfile.open(archive) as files:
            index = files.extractfile("index.json")
            assert index is not None
            [described] = json.load(index)["manifests"]
            return str(described["digest"])
    except (KeyError, ValueError, OSError, tarfile.TarError) as exc:
        raise InstallError(
            f"{archive.name} is not an OCI archive of one image",
            "docker has to be 25 or newer; BUILDER=debian needs none",
        ) from exc


def _forget_old(program: str, folder: Path) -> None:
    archives = sorted(folder.glob(f"{program}-*.tar"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[_KEPT:]:
        archive.unlink()
