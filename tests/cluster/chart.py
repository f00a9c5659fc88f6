"""Puts the project's own chart into a control plane: definitions, roles, policies; by server-side apply, as the admin.

Its workloads are switched off: the player of the nodes would play their pods, and claim that an agent runs without one.
Tests start the programs as processes.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nodedevice_api.names import AGENTS_NAMESPACE, GROUP

from hack import yaml_text
from tests.cluster.api import CustomResourceDefinition
from tests.cluster.build.binaries import find
from tests.cluster.cluster import Cluster
from tests.cluster.errors import CommandError
from tests.cluster.waiting import wait_until

CHART = Path(__file__).parents[2] / "charts" / "nodedevice"
SYSTEM_NAMESPACE = "nodedevice-system"
HOOK = "helm.sh/hook"
TEMPLATE = ("template", "nodedevice", str(CHART), "--include-crds", "--namespace", SYSTEM_NAMESPACE)
_NO_WORKLOADS = {"agents": {"enabled": False}, "operator": {"enabled": False}}


def install_chart(control_plane: Cluster, values: Mapping[str, Any] | None = None) -> None:
    """Apply the rendered chart, without its workloads, and wait until the API serves its kinds. Updates an existing one.

    values: as in a values file of Helm. Raises CommandError with the message of helm or kubectl.
    """
    install(control_plane, installed_manifests(values))


def install(control_plane: Cluster, manifests: Sequence[Mapping[str, Any]]) -> None:
    """The same with rendered manifests. Raises CommandError with the message of kubectl."""
    namespaces = [_namespace(name) for name in (SYSTEM_NAMESPACE, AGENTS_NAMESPACE)]
    control_plane.apply(yaml_text.dump_all([*namespaces, *manifests]))
    definitions = _definitions()
    for name in definitions:
        wait_established(control_plane, name)
    # an established kind may still initialize its storage: kubectl retries, but a watch would log a refusal
    control_plane.kubectl("get", ",".join(definitions), "--all-namespaces", "--request-timeout=60s")


def wait_established(control_plane: Cluster, definition: str) -> None:
    """Wait until the API serves that kind. Raises TimeoutError, and ApiError without such a definition."""

    def is_so() -> bool:
        status = control_plane.client.get(CustomResourceDefinition, definition).status
        conditions = (status and status.conditions) or []
        return any(each.type == "Established" and each.status == "True" for each in conditions)

    wait_until(is_so, f"{definition} is established")


def wait_explained(control_plane: Cluster) -> None:
    """Wait until `kubectl explain` knows the chart's kinds, which are served a moment earlier. Raises TimeoutError."""
    definitions = _definitions()

    def is_so() -> bool:
        return all(control_plane.kubectl("explain", name, check=False) for name in definitions)

    wait_until(is_so, f"{', '.join(definitions)} are explained")


def installed_manifests(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The manifests that install_chart applies: all except workloads and objects of hooks."""
    manifests = render_chart(_merged(values or {}, _NO_WORKLOADS))
    # no value disables the scheduler's Deployment but keeps its account
    return [each for each in manifests if not is_hook(each) and each["kind"] != "Deployment"]


def is_hook(manifest: Mapping[str, Any]) -> bool:
    """Whether Helm creates it only at install, upgrade, test or uninstall, and not as a part of the release."""
    return HOOK in (manifest["metadata"].get("annotations") or {})


def render_chart(values: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """All manifests of the chart, CRDs first and hooks included. Raises CommandError with helm's message."""
    return manifests_of(run_helm(TEMPLATE, values))


def run_helm(arguments: Sequence[str], values: Mapping[str, Any] | None) -> "subprocess.CompletedProcess[str]":
    """Output of helm for these arguments and values; the caller checks for failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        # JSON, not YAML: helm's reader and our writer disagree about which words are numbers
        json.dump(dict(values or {}), file)
        file.flush()
        command = [str(find(["helm"])["helm"]), *arguments, "--values", file.name]
        return subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def manifests_of(rendered: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """Parse the output of `helm template`. Raises CommandError if it failed."""
    if rendered.returncode != 0:
        raise CommandError(rendered.args, rendered.returncode, rendered.stdout, rendered.stderr)
    return [manifest for manifest in yaml_text.load_all(rendered.stdout) if manifest]


def _merged(values: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge values over others, map by map, as Helm merges several files."""
    both = dict(values)
    for key, value in over.items():
        is_map = isinstance(value, Mapping) and isinstance(both.get(key), Mapping)
        both[key] = _merged(both[key], value) if is_map else value
    return both


def _definitions() -> list[str]:
    """Names of the chart's kinds, as `nodedevices.nodedevice.io`."""
    definitions = [yaml_text.load(kind.read_text())["metadata"]["name"] for kind in CHART.glob("crds/*.yaml")]
    assert all(name.endswith(GROUP) for name in definitions), f"{definitions} are not all of the group {GROUP}"
    return definitions


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
