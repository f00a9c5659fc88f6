"""The release of the chart in a cluster: what a person does with helm, and nothing else.

    release.install(values, "--wait"); release.test(); release.upgrade(values); release.uninstall()

Every method returns what helm printed, and raises CommandError with it where helm ended with an error.
"""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from hack.cluster.build.binaries import find
from hack.cluster.chart import CHART, SYSTEM_NAMESPACE
from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.errors import CommandError

NAME = "nodedevice"
# Hooks and workloads: a Python process takes seconds to start on a busy machine.
PATIENCE = "180s"


class Release:
    """folder: for helm's own files and for values."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self._helm = find(["helm"])["helm"]
        self._folder = folder
        folder.mkdir()
        homes = {f"HELM_{kind}_HOME": str(folder / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **homes, "KUBECONFIG": str(control_plane.admin_kubeconfig)}

    def install(self, values: Mapping[str, Any], *flags: str, chart: Path = CHART) -> str:
        """Installed and ready when this returns."""
        flags = ("--create-namespace", "--wait", "--timeout", PATIENCE, *flags)
        return self._do("install", NAME, str(chart), "--values", self._written(values), *flags)

    def upgrade(self, values: Mapping[str, Any], *flags: str, chart: Path = CHART) -> str:
        """To another version of the chart, or other values; ready when this returns."""
        flags = ("--wait", "--timeout", PATIENCE, *flags)
        return self._do("upgrade", NAME, str(chart), "--values", self._written(values), *flags)

    def test(self) -> str:
        """Run the chart's own test; returns what it said, too."""
        return self._do("test", NAME, "--logs", "--timeout", PATIENCE)

    def uninstall(self, *flags: str) -> str:
        return self._do("uninstall", NAME, "--wait", "--timeout", PATIENCE, *flags)

    def is_installed(self) -> bool:
        return NAME in self._do("list", "--short").split()

    def package(self, version: str, chart: Path = CHART) -> Path:
        """An archive of the chart under that version."""
        self._do("package", str(chart), "--version", version, "--destination", str(self._folder))
        return self._folder / f"{NAME}-{version}.tgz"

    def _written(self, values: Mapping[str, Any]) -> str:
        file = self._folder / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)))
        return str(file)

    def _do(self, *arguments: str) -> str:
        command = [str(self._helm), *arguments, "--namespace", SYSTEM_NAMESPACE]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=self._environment
        )
        if done.returncode != 0:
            raise CommandError(["helm", *arguments], done.returncode, done.stdout, done.stderr)
        return done.stdout
