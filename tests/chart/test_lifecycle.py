"""Install, upgrade, uninstall and install again by helm itself, on a control plane of its own whose node only plays its pods.

So no command of a hook runs here (test_*_command.py run them); what helm makes, in which order, and what it leaves, is real.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from nodedevice_api import names

from tests.cluster.chart import CHART, SYSTEM_NAMESPACE
from tests.cluster.control_plane import ControlPlane

pytestmark = pytest.mark.cluster

Helm = Callable[..., str]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with ControlPlane.start(tmp_path_factory.mktemp("lifecycle") / "c", print) as running:
        running.add_node("node-a")
        yield running


@pytest.fixture(scope="module")
def run(cluster: ControlPlane, helm: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Helm:
    home = tmp_path_factory.mktemp("helm")

    def do(*arguments: str) -> str:
        flags = ["--kubeconfig", str(cluster.admin_kubeconfig), "--namespace", SYSTEM_NAMESPACE]
        done = helm(*arguments, *flags, env={"HOME": str(home), "PATH": ""})
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    return do


def listed(cluster: ControlPlane, kinds: str) -> set[str]:
    """Everything of ours of these kinds, in all namespaces, as Kind/name."""
    items = json.loads(cluster.kubectl("get", kinds, "--all-namespaces", "-o", "json"))["items"]
    found = {f"{each['kind']}/{each['metadata']['name']}" for each in items}
    return {each for each in found if "nodedevice" in each and "/nodedevice-test:" not in each}


RIGHTS = "clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts"
REST = "daemonsets,deployments,jobs,pods,configmaps,poddisruptionbudgets,validatingadmissionpolicies"


def jobs_seen(cluster: ControlPlane) -> list[str]:
    """Jobs that were made, oldest first, from the audit log: those of hooks are gone when helm returns."""
    return [
        event["objectRef"]["name"]
        for event in cluster.audit_events()
        if event["verb"] in {"create", "patch"}
        and event["objectRef"].get("resource") == "jobs"
        and not event["objectRef"].get("subresource")
        and "helm" in event.get("userAgent", "").lower()
    ]


def test_from_nothing_to_nothing(cluster: ControlPlane, run: Helm) -> None:
    run("install", "nodedevice", str(CHART), "--create-namespace", "--wait", "--timeout", "90s")
    rights = listed(cluster, RIGHTS)
    assert jobs_seen(cluster) == []
    assert {"DaemonSet/nodedevice-agent", "Deployment/nodedevice-operator"} <= listed(cluster, REST)
    assert not {each for each in rights if each.endswith(("-crds", "-cleanup", "-check"))}

    pods = listed(cluster, "pods")
    run("upgrade", "nodedevice", str(CHART), "--wait", "--timeout", "90s")
    assert jobs_seen(cluster) == ["nodedevice-crds"]
    assert listed(cluster, RIGHTS) == rights
    assert listed(cluster, "pods") == pods  # nothing changed, so nothing was replaced

    run("uninstall", "nodedevice", "--wait", "--timeout", "90s")
    assert jobs_seen(cluster) == ["nodedevice-crds", "nodedevice-cleanup"]
    assert listed(cluster, RIGHTS) == set()
    assert listed(cluster, REST) == set()
    kinds = {"nodedevices.nodedevice.io", "poddevices.nodedevice.io"}
    assert {each.removeprefix("CustomResourceDefinition/") for each in listed(cluster, "crds")} == kinds
    assert names.AGENTS_NAMESPACE not in cluster.kubectl("get", "namespaces", "-o", "name")

    run("install", "nodedevice", str(CHART), "--wait", "--timeout", "90s")


def test_wrong_values_are_refused_before_anything_is_made(cluster: ControlPlane, helm: Callable[..., Any]) -> None:
    flags = ["--kubeconfig", str(cluster.admin_kubeconfig), "--namespace", "other", "--create-namespace"]
    done = helm("install", "other", str(CHART), *flags, "--set", "agents.config.runtime=docker")
    assert done.returncode != 0
    assert "at '/agents/config/runtime': value must be one of 'auto', 'kubelet', 'none', 'nri'" in done.stderr
    assert "other" not in cluster.kubectl("get", "namespaces", "-o", "name")
