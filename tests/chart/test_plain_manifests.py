"""install.yaml and uninstall.yaml of a release, typed as install.yaml says, on a control plane of its own whose node plays pods.

So the Job runs no command here: that is run beside it, by its account. tests/e2e/chart/release has it on a real node.
"""

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from nodedevice_api import names
from nodedevice_operator.__main__ import main as operator_main
from nodedevice_operator.cli.crds import NAMES

from hack import yaml_text
from hack.release import chart, manifest
from tests.chart.rendering import hook_manifests, listed, render
from tests.cluster.build.binaries import find
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE, is_hook
from tests.cluster.control_plane.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

Json = dict[str, Any]
_KINDS = (
    "namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingadmissionpolicies,serviceaccounts,roles,rolebindings,configmaps,secrets,leases,daemonsets,deployments,jobs,pods,"
    "poddisruptionbudgets,services"
)
_OF_HELM = ("helm.sh/chart", "app.kubernetes.io/managed-by")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both files, of the chart as it is."""
    folder = tmp_path_factory.mktemp("manifests")
    helm = str(find(["helm"])["helm"])
    manifest.write(helm, chart.package(helm, CHART, folder, epoch=1_700_000_000), folder)
    return folder


Type = Callable[..., str]


@pytest.fixture
def typed(cluster: ControlPlane, made: Path) -> Type:
    """Type a command of kubectl in that folder; what it printed."""

    def do(command: str, *more: str) -> str:
        program, *words = shlex.split(command)
        assert program == "kubectl"
        return cluster.kubectl(*(str(made / word) if word.endswith(".yaml") else word for word in words), *more)

    return do


def objects(file: Path) -> list[Json]:
    return [each for each in yaml_text.load_all(file.read_text()) if each]


def commands(made: Path) -> list[str]:
    """Those of install.yaml: what installs, and what removes again."""
    return re.findall(r"^#   (kubectl .*)$", (made / manifest.INSTALL).read_text(), re.MULTILINE)


def without_helm(found: Json) -> Json:
    """An object of the chart as it is to be in a file for kubectl."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "annotations" or not is_hook(found)}
    if "labels" in metadata:
        metadata["labels"] = {key: value for key, value in metadata["labels"].items() if key not in _OF_HELM}
    return {**found, "metadata": metadata}


def test_it_is_the_chart_without_hooks_and_what_only_helm_acts_on(made: Path) -> None:
    namespace, *installed = objects(made / manifest.INSTALL)
    assert installed == [without_helm(each) for each in render() if not is_hook(each)]
    assert (namespace["kind"], namespace["metadata"]["name"]) == ("Namespace", SYSTEM_NAMESPACE)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    *accounts, job = objects(made / manifest.UNINSTALL)
    assert accounts == [without_helm(each) for each in hook_manifests("nodedevice-cleanup")]
    assert (job["kind"], job["metadata"]["name"]) == ("Job", "nodedevice-cleanup")
    for text in (json.dumps([namespace, *installed]), json.dumps([*accounts, job])):
        assert "helm" not in text.lower().replace("as docs/install.md", "")


def test_it_names_the_images_that_nodes_need(made: Path) -> None:
    head = (made / manifest.INSTALL).read_text().partition("\n---\n")[0]
    assert re.search(r"^#   nodedevice-agent[:@]", head, re.MULTILINE)
    assert re.search(r"^#   nodedevice-operator[:@]", head, re.MULTILINE)
    assert "name no registry" in head


def versions(cluster: ControlPlane, made: Path) -> list[Any]:
    """Of each object of install.yaml what changes with it: and where a controller writes too, what the one who applies changes."""
    stored = cluster.kubectl("get", "-o", "json", "--show-managed-fields", "-f", str(made / manifest.INSTALL))
    metadata = [each["metadata"] for each in json.loads(stored)["items"]]
    return [
        (
            each["name"],
            each.get("generation", each["resourceVersion"]),
            [(one["manager"], one["time"]) for one in each["managedFields"] if one["manager"].startswith("kubectl")],
        )
        for each in metadata
    ]


@pytest.mark.parametrize("way", ["client-side", "server-side"])
def test_applied_twice_and_removed(cluster: ControlPlane, made: Path, typed: Type, tmp_path: Path, way: str) -> None:
    install, uninstall, wait, delete = commands(made)
    flags = ["--server-side"] if way == "server-side" else []
    typed(install, *flags)
    before = versions(cluster, made)
    again = typed(install, *flags)
    assert versions(cluster, made) == before
    # kubectl replaces a budget's selector by itself each time, and says so
    others = [line for line in again.splitlines() if not line.startswith("poddisruptionbudget")]
    assert flags or {line.rpartition(" ")[2] for line in others} == {"unchanged"}
    # the other way over it
    typed(install, *([] if flags else ["--server-side"]))
    cordoned = cordon(cluster)

    typed(uninstall)
    typed(uninstall)
    typed(wait)
    run_as_job(cluster, made, tmp_path)
    if flags:
        typed(delete)
        assert listed(cluster, _KINDS) == set()
    else:
        typed(delete, "--selector", "app.kubernetes.io/name=nodedevice")
        assert listed(cluster, _KINDS) == {f"CustomResourceDefinition/{name}" for name in NAMES}
        assert cluster.kubectl("get", "nodedevices", "-o", "name").split() == [f"nodedevice.{names.GROUP}/{cordoned}"]
        cluster.kubectl("delete", "crd", *NAMES)


def cordon(cluster: ControlPlane) -> str:
    """As if an agent had published a NodeDevice and an administrator had cordoned a device of it. Returns its name."""
    name = names.node_device_name("node-a", "example.com/gpu")
    spec = {"nodeName": "node-a", "resourceName": "example.com/gpu", "cordonedDevices": [{"id": "gpu-0"}]}
    kind = {"apiVersion": names.API_VERSION, "kind": names.NODE_DEVICE}
    cluster.apply(json.dumps({**kind, "metadata": {"name": name}, "spec": spec}))
    return name


def run_as_job(cluster: ControlPlane, made: Path, folder: Path) -> None:
    """The command of the Job, by its account."""
    *_, job = objects(made / manifest.UNINSTALL)
    pod = job["spec"]["template"]["spec"]
    kubeconfig = cluster.service_account_kubeconfig(SYSTEM_NAMESPACE, pod["serviceAccountName"], folder / "account")
    done = CliRunner().invoke(operator_main, [*pod["containers"][0]["args"], "--kubeconfig", str(kubeconfig)])
    assert done.exit_code == 0, done.output
    printed = done.stdout.splitlines()
    assert {"deleted deployments nodedevice-operator", "deleted daemonsets nodedevice-agent"} <= {*printed}
