"""A value that is null, or that the chart before did not have, means its default; and each change of a value reaches its pods."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts import generate_defaults
from tests.chart.rendering import agent_pod, render
from tests.cluster.chart import CHART, run_helm

pytestmark = pytest.mark.cluster

LEAVES = generate_defaults.defaults()


def nested(paths: dict[str, Any]) -> dict[str, Any]:
    """Values by their paths as a values file has them."""
    made: dict[str, Any] = {}
    for path, value in paths.items():
        *sections, key = path.split(".")
        at = made
        for section in sections:
            at = at.setdefault(section, {})
        at[key] = value
    return made


def test_every_template_that_helm_renders_begins_with_them() -> None:
    """In which order Helm renders them is its own affair."""
    templates = [path for path in (CHART / "templates").iterdir() if not path.name.startswith("_")]
    assert len(templates) > 20
    first = '{{- include "nodedevice.withDefaults" . }}\n'
    assert [path.name for path in templates if not path.read_text(encoding="utf-8").startswith(first)] == []


@pytest.mark.parametrize("everything", ["off", "on"])
def test_null_is_the_default_of_each_value(everything: str) -> None:
    """Where nearly everything is on, too, since then most templates read their values."""
    switches = {path: True for path, value in LEAVES.items() if value is False and path.endswith(".enabled")}
    chosen = switches | {"scheduler.managedResources": ["example.com/gpu"]} if everything == "on" else {}
    nulls = dict.fromkeys(LEAVES.keys() - chosen.keys())
    assert len(nulls) > 90
    assert render(nested(nulls | chosen)) == render(nested(chosen))


def test_a_section_that_is_null_has_all_its_defaults() -> None:
    sections = {path.rpartition(".")[0] for path in LEAVES if "." in path}
    tops = dict.fromkeys(section for section in sections if "." not in section)
    assert render(tops) == render()
    assert render(nested(dict.fromkeys(section for section in sections if section.count(".") == 1))) == render()


def test_an_entry_of_a_mapping_can_be_taken_away() -> None:
    [container] = agent_pod({"agents": {"resources": {"limits": None}}})["containers"]
    assert container["resources"].keys() == {"requests"}


def test_a_parent_chart_can_leave_it_out(tmp_path: Path) -> None:
    shutil.copytree(CHART, tmp_path / "parent" / "charts" / "nodedevice")
    chart = {"apiVersion": "v2", "name": "parent", "version": "0.1.0"}
    dependency = {"name": "nodedevice", "version": ">=0", "condition": "nodedevice.enabled"}
    (tmp_path / "parent" / "Chart.yaml").write_text(yaml.safe_dump({**chart, "dependencies": [dependency]}))
    for enabled in (True, False):
        done = run_helm(("template", "x", str(tmp_path / "parent")), {"nodedevice": {"enabled": enabled}})
        assert done.returncode == 0, done.stderr
        assert ("kind: DaemonSet" in done.stdout) == enabled
