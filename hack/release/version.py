"""The version of a release, and its section of the changelog. Pure: texts in, values out.

A version has to be one of Semantic Versioning, as the chart's is, and one of PEP 440, as the wheels' is.
"""

import re
import tomllib
from collections.abc import Mapping

import yaml
from packaging.version import InvalidVersion, Version

from hack.release.errors import ReleaseError

_SEMANTIC = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?")


def parse(text: str) -> Version:
    """`0.1.0`, `0.2.0-rc.1`. Raises ReleaseError if one of the two kinds of version does not allow it."""
    remedy = "write it as VERSION=0.1.0 or VERSION=0.2.0-rc.1"
    if not text:
        raise ReleaseError("no VERSION is given", remedy)
    try:
        version = Version(text)
    except InvalidVersion:
        version = None
    if version is None or not _SEMANTIC.fullmatch(text) or version.is_postrelease:
        raise ReleaseError(f"VERSION={text} is not a version that both Helm and Python know", remedy)
    return version


def check_sources(version: Version, pyprojects: Mapping[str, str], chart: str) -> None:
    """Raise ReleaseError if a distribution or the chart has another version.

    pyprojects: texts of the pyproject.toml files by their paths. chart: text of Chart.yaml.
    """
    said = {path: tomllib.loads(text)["project"]["version"] for path, text in pyprojects.items()}
    metadata = yaml.safe_load(chart)
    said |= {f"Chart.yaml's {key}": metadata[key] for key in ("version", "appVersion")}
    for place, other in said.items():
        if Version(other) != version:
            raise ReleaseError(f"{place} is {other}, not {version}", "set it, or release that version")


def notes(changelog: str, version: Version) -> str:
    """The section of the changelog about that version, without its heading. Raises ReleaseError if it is missing."""
    for section in re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("\n")
        name = heading.split()[0].strip("[]")
        if name == str(version) or _is(name, version):
            return body.strip() + "\n"
    raise ReleaseError(
        f"CHANGELOG.md has no section {version}", f"write the section `## {version}`, or correct VERSION"
    )


def _is(name: str, version: Version) -> bool:
    try:
        return Version(name) == version
    except InvalidVersion:
        return False
