"""The Helm chart as somebody installs it: which objects it renders, and that applying them again changes nothing."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from nodedevice_api.names import AGENTS_NAMESPACE

from hack import yaml_text
from tests.chart.rendering import render
from tests.cluster.chart import CHART, SYSTEM_NAMESPACE, is_hook

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).parents[2]
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
# what holds the operator to parts of a right beside its first policy
OF_CONFIGS = ("nodedevice-configs", "nodedevice-config-size")
OPERATORS_ALSO = ("nodedevice-operator-nodedevices", "nodedevice-operator-cordons", "nodedevice-operator-pods")

OPERATORS_ROLES = ("nodedevice-operator-election", "nodedevice-operator-check")
FOR_PEOPLE = {
    *(("ClusterRole", "", f"nodedevice-{name}") for name in ("view", "fleet-view", "cordon")),
    *(("Role", namespace, "nodedevice-fleet-view") for namespace in (SYSTEM_NAMESPACE, AGENTS_NAMESPACE)),
    *((kind, "", "nodedevice-cordon") for kind in POLICIES),
}


def rendered(values: dict[str, Any] | None = None) -> dict[tuple[str, str, str], dict[str, Any]]:
    """The chart's objects, but for its CRDs and hooks, by kind, namespace and name."""
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in render(values)
        if each["kind"] != "CustomResourceDefinition" and not is_hook(each)
    }


def test_renders_these_objects_and_no_others() -> None:
    accounts = ("nodedevice-agent", "nodedevice-operator")
    assert set(rendered()) == {
        ("Namespace", "", AGENTS_NAMESPACE),
        *(("ServiceAccount", SYSTEM_NAMESPACE, account) for account in accounts),
        *((kind, "", account) for kind in ("ClusterRole", "ClusterRoleBinding") for account in accounts),
        *((kind, AGENTS_NAMESPACE, account) for kind in ("Role", "RoleBinding") for account in accounts),
        *((kind, "", name) for kind in POLICIES for name in (*accounts, *OPERATORS_ALSO, *OF_CONFIGS)),
        *((kind, SYSTEM_NAMESPACE, name) for kind in ("Role", "RoleBinding") for name in OPERATORS_ROLES),
        *FOR_PEOPLE,
        *(("ConfigMap", SYSTEM_NAMESPACE, account) for account in accounts),
        ("DaemonSet", SYSTEM_NAMESPACE, "nodedevice-agent"),
        ("Deployment", SYSTEM_NAMESPACE, "nodedevice-operator"),
        ("PodDisruptionBudget", SYSTEM_NAMESPACE, "nodedevice-operator"),
    }


@pytest.mark.parametrize(
    ("value", "policies"),
    [
        ("agents", ["nodedevice-agent"]),
        ("operator", ["nodedevice-operator", *OPERATORS_ALSO]),
        ("configs", [*OF_CONFIGS]),
    ],
)
def test_a_policy_can_be_switched_off(value: str, policies: list[str]) -> None:
    missing = set(rendered()) - set(rendered({"admission": {value: False}}))
    assert missing == {(kind, "", name) for kind in POLICIES for name in policies}


def test_the_roles_for_people_can_be_left_out() -> None:
    assert set(rendered()) - set(rendered({"peopleRoles": False})) == FOR_PEOPLE


def test_every_object_is_labelled() -> None:
    for object_id, each in rendered().items():
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "nodedevice", object_id
        assert labels["app.kubernetes.io/instance"] == "nodedevice", object_id
        assert labels["app.kubernetes.io/managed-by"] == "Helm", object_id
        assert labels["app.kubernetes.io/component"] in {"agent", "operator", "people"}, object_id


@pytest.mark.parametrize("distribution", ["node-agent", "operator"])
def test_chart_is_of_the_version_of_the_programs(distribution: str) -> None:
    chart = yaml_text.load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / distribution / "pyproject.toml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == project["project"]["version"]
