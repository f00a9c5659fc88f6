"""Writes the files for krew: an archive of the zipapp with the licence, and the manifest that names both.

It is pure Python, so one archive is for Linux and macOS on any processor. In an index the manifest is
`nodedevice.yaml`. Form: krew.googlecontainertools.github.com/v1alpha2.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from hack.release import sums
from hack.release.zips import zipped

PLUGIN: Final = "nodedevice"
PROGRAM: Final = "kubectl-nodedevice"
MANIFEST: Final = f"{PLUGIN}.krew.yaml"
_LICENCE: Final = "LICENSE"
_ABOUT: Final = (
    "Shows the devices of nodes (GPUs, USB, any device plugin's and DRA driver's): which pod uses which, "
    "which are unhealthy or cordoned, and why a pod waits. Cordons and uncordons devices.\n"
)


def write(zipapp: Path, licence: Path, version: str, source: str, made: Path) -> None:
    """Write both into `made`.

    source: the address of the project, whose releases people download; empty before the first. Without it `uri` is
    the archive's name alone, and krew needs --archive.
    """
    archive = made / f"{PROGRAM}-{version}.zip"
    archive.write_bytes(zipped({PROGRAM: (zipapp.read_bytes(), 0o755), _LICENCE: (licence.read_bytes(), 0o644)}))
    uri = f"{source.rstrip('/')}/releases/download/v{version}/{archive.name}" if source else archive.name
    text = yaml.safe_dump(manifest(version, source, uri, sums.digest(archive)), sort_keys=False, width=120)
    (made / MANIFEST).write_text(text, encoding="utf-8")


def manifest(version: str, source: str, uri: str, sha256: str) -> dict[str, Any]:
    """The manifest for krew. version: without the v that krew adds."""
    homepage = {"homepage": source} if source else {}
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        "uri": uri,
        "sha256": sha256,
        "files": [{"from": PROGRAM, "to": "."}, {"from": _LICENCE, "to": "."}],
        "bin": PROGRAM,
    }
    return {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": PLUGIN},
        "spec": {
            "version": f"v{version}",
            **homepage,
            "shortDescription": "Devices of nodes, their pods, and why pods wait",
            "description": _ABOUT,
            "caveats": "Needs python3, 3.11 or newer, in PATH.\n",
            "platforms": [platform],
        },
    }
