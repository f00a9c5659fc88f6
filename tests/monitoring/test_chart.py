"""What the chart makes for Prometheus, Grafana and kube-state-metrics: nothing unless asked, and then what finds our pods."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.dashboards.__main__ import DASHBOARDS, as_json
from tests.cluster.chart import render_chart
from tests.cluster.errors import CommandError
from tests.monitoring import expressions
from tests.monitoring.prometheus import promtool
from tests.monitoring.test_kube_state_metrics import CONFIG

Json = dict[str, Any]


def rendered(monitoring: Mapping[str, Any], kind: str = "", **values: Any) -> list[Json]:
    """What these values add to the chart, of one kind or any."""
    plain = {_identity(one) for one in render_chart(values)}
    made = render_chart({**values, "monitoring": monitoring})
    return [one for one in made if _identity(one) not in plain and kind in ("", one["kind"])]


def enabled(*parts: str) -> Json:
    return {part: {"enabled": True} for part in parts}


@pytest.mark.parametrize(
    ("part", "kinds"),
    [
        ("monitors", {"PodMonitor", "ServiceMonitor", "Service"}),
        ("rules", {"PrometheusRule"}),
        ("dashboards", {"ConfigMap"}),
        ("kubeStateMetrics", {"ConfigMap", "ClusterRole", "ClusterRoleBinding"}),
    ],
)
def test_each_part_comes_alone(part: str, kinds: set[str]) -> None:
    assert {one["kind"] for one in rendered(enabled(part))} == kinds


def test_monitors_find_the_pods_and_their_port() -> None:
    workloads = {one["kind"]: one["spec"]["template"] for one in render_chart() if one["kind"] in _WORKLOAD_OF.values()}
    for monitor in rendered({"monitors": {"enabled": True, "interval": "15s", "labels": {"release": "kps"}}}):
        if monitor["kind"] == "Service":
            selector, port = monitor["spec"]["selector"], monitor["spec"]["ports"][0]["targetPort"]
        else:
            (endpoint,) = monitor["spec"].get("podMetricsEndpoints") or monitor["spec"]["endpoints"]
            selector, port = monitor["spec"]["selector"]["matchLabels"], endpoint["port"]
            assert (endpoint["interval"], endpoint["path"]) == ("15s", "/metrics")
            # without it a pod that holds devices would be taken for the agent's own
            assert endpoint["honorLabels"] is True
            assert monitor["metadata"]["labels"]["release"] == "kps"
        template = workloads[_WORKLOAD_OF[monitor["kind"]]]
        assert selector.items() <= template["metadata"]["labels"].items()
        assert port in {each["name"] for each in template["spec"]["containers"][0]["ports"]}


_WORKLOAD_OF = {"PodMonitor": "DaemonSet", "ServiceMonitor": "Deployment", "Service": "Deployment"}


def test_a_service_monitor_finds_its_service() -> None:
    made = {one["kind"]: one for one in rendered(enabled("monitors"))}
    service, monitor = made["Service"], made["ServiceMonitor"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]


@pytest.mark.parametrize(
    ("left_out", "kinds"), [("agents", {"Service", "ServiceMonitor"}), ("operator", {"PodMonitor"})]
)
def test_no_monitor_for_what_is_not_installed(left_out: str, kinds: set[str]) -> None:
    values: Json = {left_out: {"enabled": False}}
    made = rendered(enabled("monitors"), **values)
    assert {one["kind"] for one in made} == kinds


def test_agents_get_the_name_of_their_node() -> None:
    (monitor,) = rendered(enabled("monitors"), "PodMonitor")
    (relabeling,) = monitor["spec"]["podMetricsEndpoints"][0]["relabelings"]
    assert relabeling == {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}


def test_rules_are_those_of_the_file(tmp_path: Path) -> None:
    base = "https://docs.example.com/nodedevice/"
    (made,) = rendered({"rules": {"enabled": True, "runbookBase": base}}, "PrometheusRule")
    shipped = expressions.rules()
    (without,) = rendered({"rules": {"enabled": True}}, "PrometheusRule")
    assert without["spec"] == shipped
    for group in shipped["groups"]:
        for rule in group["rules"]:
            rule["annotations"]["runbook_url"] = base + rule["annotations"]["runbook"]
    assert made["spec"] == shipped
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(made["spec"]))
    promtool("check", "rules", "rules.yaml", folder=tmp_path)


def test_rules_can_be_left_out() -> None:
    first, *others = [rule["alert"] for rule in expressions.alerts()]
    (made,) = rendered({"rules": {"enabled": True, "disabled": [first]}}, "PrometheusRule")
    assert [rule["alert"] for group in made["spec"]["groups"] for rule in group["rules"]] == others


def test_dashboards_are_those_of_the_code() -> None:
    values = {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "Nodes"}}
    (made,) = rendered({"dashboards": values}, "ConfigMap")
    assert made["metadata"]["namespace"] == "grafana"
    assert made["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert made["metadata"]["annotations"] == {"grafana_folder": "Nodes"}
    # the sidecar writes all ConfigMaps' files into one folder
    assert set(made["data"]) == {f"nodedevice-{name}" for name in DASHBOARDS}
    for name, make in DASHBOARDS.items():
        assert json.loads(made["data"][f"nodedevice-{name}"]) == json.loads(as_json(make()))


def test_kube_state_metrics_gets_its_configuration_and_the_right_to_read() -> None:
    account = {"name": "ksm", "namespace": "monitoring"}
    made = {one["kind"]: one for one in rendered({"kubeStateMetrics": {"enabled": True, "serviceAccount": account}})}
    assert made["ConfigMap"]["metadata"]["namespace"] == "monitoring"
    assert made["ConfigMap"]["data"] == {"nodedevice.yaml": CONFIG.read_text()}
    assert made["ClusterRoleBinding"]["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert made["ClusterRoleBinding"]["roleRef"]["name"] == made["ClusterRole"]["metadata"]["name"]
    assert {verb for rule in made["ClusterRole"]["rules"] for verb in rule["verbs"]} == {"list", "watch"}


@pytest.mark.parametrize(
    ("monitoring", "named"),
    [
        ({"rules": {"enabled": True, "disabled": ["NodeDeviceNope"]}}, "there is no alert NodeDeviceNope"),
        ({"rules": {"enabeld": True}}, "enabeld"),
        ({"rules": {"runbookBase": "https://docs.example.com"}}, "monitoring/rules/runbookBase"),
    ],
    ids=["alert", "typo", "runbook"],
)
def test_wrong_values_are_refused_by_name(monitoring: Json, named: str) -> None:
    with pytest.raises(CommandError, match=named):
        render_chart({"monitoring": monitoring})


def _identity(manifest: Json) -> tuple[str, str]:
    return manifest["kind"], manifest["metadata"]["name"]
