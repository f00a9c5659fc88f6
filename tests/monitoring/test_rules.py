"""The alert rules by promtool: each fires when it should and not sooner, says what to do and where to read, and resolves."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.monitoring import expressions
from tests.monitoring.alerts import CASES, Case
from tests.monitoring.prometheus import promtool

DOCS = Path(__file__).parents[2]
_RULES = {rule["alert"]: rule for rule in expressions.alerts()}
_SEVERITIES = {"info", "warning", "critical"}
# Flags of kubectl that these verbs have; `describe` has no field selector.
_FLAGS = {
    "get": {"-A", "-l", "-o", "--field-selector", "--namespace"},
    "logs": {"-l", "--namespace", "--prefix"},
}


def test_rules_are_rules(tmp_path: Path) -> None:
    assert f"{len(_RULES)} rules found" in promtool("check", "rules", expressions.RULES, folder=tmp_path)


def test_every_rule_has_a_case() -> None:
    assert {case.alert for case in CASES} == set(_RULES)


@pytest.mark.parametrize("case", CASES, ids=[case.alert for case in CASES])
def test_it_fires_and_resolves(case: Case, tmp_path: Path) -> None:
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(_as_promtool_wants(case)))
    promtool("test", "rules", "test.yaml", folder=tmp_path)


@pytest.mark.parametrize("rule", _RULES.values(), ids=list(_RULES))
def test_whoever_is_woken_knows_what_to_do(rule: dict[str, Any]) -> None:
    annotations = rule["annotations"]
    assert rule["labels"]["severity"] in _SEVERITIES
    assert annotations["summary"].endswith(".")
    assert annotations["description"].rstrip().endswith(".")
    page, _, anchor = annotations["runbook"].partition("#")
    assert anchor == rule["alert"].lower()
    assert anchor in _anchors((DOCS / page).read_text())


@pytest.mark.parametrize("rule", _RULES.values(), ids=list(_RULES))
def test_whoever_is_woken_has_a_line_to_paste(rule: dict[str, Any]) -> None:
    lines = re.findall(r"`kubectl ([^`]+)`", rule["annotations"]["description"])
    assert lines
    for verb, *words in map(shlex.split, lines):
        assert {word for word in words if word.startswith("-")} <= _FLAGS[verb]
    labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["description"]))
    assert labels <= {"cause", "kind", "node", "outcome", "reason", "resource_name", "state", "verb"}


def _as_promtool_wants(case: Case) -> dict[str, Any]:
    annotations = {key: _filled(text, case) for key, text in _RULES[case.alert]["annotations"].items()}
    assert case.message in annotations["description"]
    alert = {"exp_labels": {"severity": case.severity, **case.labels}, "exp_annotations": annotations}
    quiet_at, fires_at, resolved_at = case.minutes
    moments = [(quiet_at, []), (fires_at, [alert]), (resolved_at, [])]
    return {
        "rule_files": [str(expressions.RULES)],
        "evaluation_interval": f"{case.every_minutes}m",
        "tests": [
            {
                "interval": f"{case.every_minutes}m",
                "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
                "alert_rule_test": [
                    {"eval_time": f"{minute}m", "alertname": case.alert, "exp_alerts": alerts}
                    for minute, alerts in moments
                ],
            }
        ],
    }


def _filled(text: str, case: Case) -> str:
    """As Prometheus fills in what these rules use of its templates."""
    text = re.sub(r"\{\{ (printf \"%\.0f\" )?\$value \}\}", case.value or "no value", text)
    return re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: case.labels[found[1]], text)


def _anchors(page: str) -> set[str]:
    """Of its headings, as GitHub makes them of one word."""
    return {heading.lower() for heading in re.findall(r"^#+ (\w+)$", page, re.MULTILINE)}
