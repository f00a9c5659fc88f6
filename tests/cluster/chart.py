"""Puts the project's own chart into a control plane: definitions, roles, policies; by server-side apply, as the admin.

Its workloads are left out: KWOK would play their pods, and claim that an agent runs where none does. Whoever tests
starts the programs as processes.
"""

import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from nodedevice_api.names import AGENTS_NAMESPACE, GROUP

from tests.cluster.binaries import find
from tests.cluster.control_plane import ControlPlane
from tests.cluster.errors import CommandError

CHART = Path(__file__).parents[2] / "charts" / "nodedevice"
SYSTEM_NAMESPACE = "nodedevice-system"
_WORKLOADS = {"DaemonSet", "Deployment"}


def install_chart(control_plane: ControlPlane, values: Mapping[str, Any] | None = None) -> None:
    """Apply the rendered chart and wait until the API serves its kinds. Installed already: brought up to date.

    values: as in a values file of Helm. Raises CommandError with what helm or kubectl said.
    """
    for namespace in (SYSTEM_NAMESPACE, AGENTS_NAMESPACE):
        control_plane.apply(yaml.safe_dump(_namespace(namespace)))
    manifests = [manifest for manifest in render_chart(values) if manifest["kind"] not in _WORKLOADS]
    control_plane.apply(yaml.safe_dump_all(manifests))
    for kind in CHART.glob("crds/*.yaml"):
        name = yaml.safe_load(kind.read_text())["metadata"]["name"]
        assert name.endswith(GROUP), f"{kind} is not of the group {GROUP}"
        control_plane.kubectl("wait", "--for=condition=Established", f"crd/{name}", "--timeout=30s")


def render_chart(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """All manifests of the chart, CRDs first. Raises CommandError with what helm said."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values or {}), file)
        file.flush()
        command = [str(find(["helm"])["helm"]), "template", "nodedevice", str(CHART), "--include-crds"]
        command += ["--namespace", SYSTEM_NAMESPACE, "--values", file.name]
        done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise CommandError(command, done.returncode, done.stdout, done.stderr)
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
