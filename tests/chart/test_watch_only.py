"""docs/watch-only-values.yaml: one node, nothing allocated, nothing written about Nodes and pods."""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.chart.rendering import agent_pod, named, render

pytestmark = pytest.mark.cluster

DOCS: Final = Path(__file__).parents[2] / "docs"
FILE: Final = DOCS / "watch-only-values.yaml"


@pytest.fixture
def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return found


def test_the_page_has_the_file() -> None:
    assert f"```yaml\n{FILE.read_text()}```" in (DOCS / "watch-only.md").read_text()


def test_one_node_has_an_agent_that_writes_its_own_directory_alone(values: dict[str, Any]) -> None:
    pod = agent_pod(values)
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "kubernetes.io/hostname": "node-1"}
    [container] = pod["containers"]
    writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/nodedevice"}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources"} <= mounted


def test_neither_program_may_touch_pods_or_metadata_of_nodes(values: dict[str, Any]) -> None:
    for name in ("nodedevice-agent", "nodedevice-operator"):
        for rule in named("ClusterRole", name, values)["rules"]:
            if {"pods", "nodes", "pods/eviction", "pods/status"} & {*rule["resources"]}:
                assert {*rule["verbs"]} <= {"get", "list", "watch"}
    assert not [each for each in render(values) if each["kind"].startswith("MutatingAdmissionPolicy")]
