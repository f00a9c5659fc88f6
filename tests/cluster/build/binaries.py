"""Finds the programs of a control plane and of a node.

`KUBEBUILDER_ASSETS`, if set, comes first, by the convention of envtest (a folder with etcd, kube-apiserver and
kubectl). Programs that it lacks are downloaded once from their project, or built from the modules pinned in
tests/cluster/build/go, or taken from Debian's packages, and kept in the user's cache folder.
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.cluster.build import debian
from tests.cluster.build.builder import build, built_path
from tests.cluster.build.cache import cache_folder, lock
from tests.cluster.build.downloads import download
from tests.cluster.build.pins import ALL_BINARIES
from tests.cluster.errors import BinaryError

ALL_PROGRAMS = (*ALL_BINARIES, *debian.PACKAGES)


def find(names: Iterable[str], progress: Callable[[str], None] = lambda _: None) -> dict[str, Path]:
    """Path of each named program; downloads or builds missing ones.

    progress: called with a line for each step. A build takes minutes the first time, and no time later.
    Raises BinaryError, with a remedy.
    """
    paths = _paths(names)
    lacking = _lacking(paths)
    to_fetch = [name for name in lacking if name in debian.PACKAGES]
    if to_fetch:
        with lock(cache_folder(), progress):
            debian.fetch(to_fetch, _kept_path, progress)
    to_build = [name for name in lacking if name not in debian.PACKAGES]
    if to_build:
        download(to_build, cache_folder(), progress)
        build(to_build, cache_folder(), progress)
    return paths


def missing(names: Iterable[str]) -> list[str]:
    """Programs that `find` would download or build. Raises BinaryError for the same causes as find."""
    return _lacking(_paths(names))


def _paths(names: Iterable[str]) -> dict[str, Path]:
    return {name: _asset(name) or _kept_path(_known(name)) for name in names}


def _lacking(paths: Mapping[str, Path]) -> list[str]:
    return [name for name, path in paths.items() if not path.exists()]


def _asset(name: str) -> Path | None:
    folder = os.environ.get("KUBEBUILDER_ASSETS")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise BinaryError(name, f"KUBEBUILDER_ASSETS names {folder}, which is not a folder", "correct it or unset it")
    asset = Path(folder).absolute() / name
    return asset if os.access(asset, os.X_OK) else None


def _kept_path(name: str) -> Path:
    if name in debian.PACKAGES:
        return cache_folder() / "bin" / debian.PACKAGES[name].key / name
    return built_path(name, cache_folder())


def _known(name: str) -> str:
    if name not in ALL_PROGRAMS:
        raise BinaryError(name, "is not a program of a cluster", f"name one of {', '.join(ALL_PROGRAMS)}")
    return name
