"""The chart of a release: the tree's, with the images' digests and the registry in its values.

`helm package` checks the chart and chooses its files. Its archive contains the time, so it is written again.
"""

import gzip
import re
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

from hack.release.errors import ReleaseError

_REGISTRY = re.compile(r'^(image:\n(?:  .*\n)*?  registry: )""$', re.MULTILINE)


def check_registry(registry: str) -> None:
    """Raise ReleaseError if REGISTRY cannot be a prefix of an image; empty is valid."""
    if registry and not re.fullmatch(r"[a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*", registry):
        raise ReleaseError(f"REGISTRY={registry} is not a prefix of an image", "write it as registry.example.com/team")


def with_images(values: str, registry: str, digests: Mapping[str, str]) -> str:
    """The text of values.yaml with a registry and a digest for each repository (`nodedevice-agent`: `sha256:…`). Pure."""
    values, found = _REGISTRY.subn(rf'\g<1>"{registry}"', values)
    assert found == 1, "values.yaml has no image.registry"
    for repository, digest in digests.items():
        block = rf'(^( +)repository: {repository}\n(?:\2.*\n)*?\2digest: )""$'
        values, found = re.subn(block, rf'\g<1>"{digest}"', values, flags=re.MULTILINE)
        assert found == 1, f"values.yaml has no digest of {repository}"
    return values


def with_source(chart_yaml: str, source: str) -> str:
    """The text of Chart.yaml with the address of the sources; unchanged without an address. Pure. Raises ReleaseError
    for an invalid one.
    """
    if not source:
        return chart_yaml
    if not re.fullmatch(r"https://[^\s\"]+", source):
        raise ReleaseError(f"SOURCE={source} is not an address", "write it as https://git.example.com/team/nodedevice")
    return f'{chart_yaml}home: "{source}"\nsources: ["{source}"]\n'


def package(helm: str, chart: Path, target: Path, epoch: int) -> Path:
    """Package a chart's folder. Returns the archive, NAME-VERSION.tgz."""
    done = subprocess.run(
        [helm, "package", str(chart), "--destination", str(target)], check=False, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise ReleaseError(f"helm does not package the chart ({done.stderr.strip()})", "run `make chart`")
    (archive,) = target.glob("*.tgz")
    _write_again(archive, epoch)
    return archive


def _write_again(archive: Path, epoch: int) -> None:
    with tarfile.open(archive) as files:
        members = sorted((entry.name, files.extractfile(entry)) for entry in files.getmembers() if entry.isfile())
        unfinished = archive.with_suffix(".unfinished")
        with (
            unfinished.open("wb") as raw,
            gzip.GzipFile("", "wb", mtime=epoch, fileobj=raw) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as again,
        ):
            for name, content in members:
                entry = tarfile.TarInfo(name)
                entry.mtime, entry.mode, entry.size = epoch, 0o644, files.getmember(name).size
                again.addfile(entry, content)
    unfinished.replace(archive)
