"""A release's folder before it is published: verified file by file, with the target of each file.

Builds nothing; the output of `make release` is published.
"""

import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from hack.release import sums
from hack.release.errors import ReleaseError

_AGAIN = "make it again with `make release`"


@dataclass(frozen=True)
class Image:
    """An image of the release. digest: of its index, as the chart names it; manifests: digest by architecture."""

    program: str
    archive: Path
    digest: str
    manifests: Mapping[str, str]


@dataclass(frozen=True)
class Dist:
    """registry: what the chart names. distributions: wheels and sdists, sorted."""

    folder: Path
    version: str
    registry: str
    chart: Path
    images: tuple[Image, ...]
    distributions: tuple[Path, ...]

    @property
    def sums(self) -> Path:
        return self.folder / sums.NAME

    @property
    def provenance(self) -> Path:
        return self.folder / "provenance.json"

    def sbom(self, image: Image, architecture: str) -> Path:
        return self.folder / f"{image.program}-{self.version}-{architecture}.cdx.json"


def read(folder: Path) -> Dist:
    """Verify a release's folder. Raises ReleaseError for a missing, changed or unknown file."""
    if not (folder / sums.NAME).is_file():
        raise ReleaseError(f"{folder} has no release", "make one with `make release VERSION=… REGISTRY=…`")
    _verify(folder)
    charts = sorted(folder.glob("nodedevice-*.tgz"))
    if len(charts) != 1:
        raise ReleaseError(f"{folder} has {len(charts)} charts", _AGAIN)
    metadata, values = (_of_chart(charts[0], name) for name in ("Chart.yaml", "values.yaml"))
    version = metadata["version"]
    images = tuple(_image(folder, version, values[part]["image"]) for part in ("agents", "operator"))
    distributions = sorted([*folder.glob("*.whl"), *folder.glob("*.tar.gz")])
    return Dist(folder, version, values["image"]["registry"], charts[0], images, tuple(distributions))


def _verify(folder: Path) -> None:
    for line in (folder / sums.NAME).read_text().splitlines():
        expected, _, name = line.partition("  ")
        file = folder / name
        if not file.is_file():
            raise ReleaseError(f"{name} is missing in {folder}", _AGAIN)
        if sums.digest(file) != expected:
            raise ReleaseError(f"{name} is not what {sums.NAME} says: it was changed after the release", _AGAIN)


def _of_chart(chart: Path, name: str) -> Any:
    with tarfile.open(chart) as files:
        content = files.extractfile(f"nodedevice/{name}")
        assert content is not None
        return yaml.safe_load(content)


def _image(folder: Path, version: str, named: Mapping[str, str]) -> Image:
    program = named["repository"]
    archive = folder / f"{program}-{version}.oci.tar"
    if not archive.is_file():
        raise ReleaseError(f"{folder} has no {archive.name}", _AGAIN)
    with tarfile.open(archive) as files:
        (index,) = _json(files, "index.json")["manifests"]
        listed = _json(files, f"blobs/{index['digest'].replace(':', '/')}")["manifests"]
    if index["digest"] != named["digest"]:
        raise ReleaseError(f"the chart names another {program} than {archive.name}, {named['digest']}", _AGAIN)
    return Image(
        program, archive, index["digest"], {each["platform"]["architecture"]: each["digest"] for each in listed}
    )


def _json(files: tarfile.TarFile, name: str) -> Any:
    content = files.extractfile(name)
    assert content is not None
    return json.load(content)
