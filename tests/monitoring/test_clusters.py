"""Panels about single programs in a Prometheus of two clusters, whose agents and operators have the same addresses."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring import expressions
from tests.monitoring.prometheus import promtool

_CLUSTERS = ("east", "west")
_ASKED = {
    panel["title"]: target["expr"]
    for panel in expressions.panels(expressions.dashboards()["fleet.json"])
    for target in panel["targets"]
}


@pytest.mark.parametrize(("title", "job"), [("Memory of the operator", "operator"), ("Memory of agents", "agent")])
def test_each_program_is_shown_once(title: str, job: str, tmp_path: Path) -> None:
    """Joined by the address alone, one series of the one would match two of the other: an error in place of a panel."""
    shown = {cluster: f'{{cluster="{cluster}", instance="10.0.0.1:80", node="node-a"}}' for cluster in _CLUSTERS}
    series = [
        {"series": f"{metric}{labels}", "values": value}
        for cluster, labels in shown.items()
        for metric, value in (
            ("process_resident_memory_bytes", f"{len(cluster) + _CLUSTERS.index(cluster)}"),
            (f"nodedevice_{job}_info", "1"),
        )
    ]
    asked: dict[str, Any] = {
        "expr": expressions.filled(_ASKED[title]),
        "eval_time": "0m",
        "exp_samples": [{"labels": shown["east"], "value": 4}, {"labels": shown["west"], "value": 5}],
    }
    tests = {"tests": [{"input_series": series, "promql_expr_test": [asked]}]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    promtool("test", "rules", "test.yaml", folder=tmp_path)
    asked["expr"] = re.sub(r"on \(cluster, ", "on (", asked["expr"])
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(tests))
    with pytest.raises(AssertionError, match="duplicate series"):
        promtool("test", "rules", "test.yaml", folder=tmp_path)
