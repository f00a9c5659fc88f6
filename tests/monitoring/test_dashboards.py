"""The dashboards as they are checked in: whole, of metrics that there are, and readable without knowing them."""

import re
from typing import Any, cast

import pytest
from nodedevice_agent import metrics as agent
from nodedevice_operator.configs.controller import ConfigController, ConfigsApi
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.stores import FleetStores
from nodedevice_operator.informers.store import Cache, Store
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.shared_slices import SharedSlices
from prometheus_client import REGISTRY, CollectorRegistry

from tests.monitoring import expressions
from tests.monitoring.test_kube_state_metrics import resources

BOARDS = expressions.dashboards()
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in expressions.panels(board)]
_METRIC = re.compile(r"\b(?:nodedevice|process|kube)_\w+")
_SUFFIX = re.compile(r"_(bucket|count|sum|total)$")


def exported() -> set[str]:
    """Names of all metric families of all programs, and of kube-state-metrics with our configuration."""
    operator = Metrics()
    operator.watch(Cache())
    # neither asks for anything before it works
    nobody, fence = cast(Client, None), WriteFence()
    operator.registry.register(SharedSlices(nobody, fence))
    operator.registry.register(ConfigController(ConfigsApi(nobody), fence, Store()))
    agent.begin("example.com/gpu", pre_start_required=True)
    fleet = Fleet()
    extender = ExtenderMetrics()
    extender.watch(FleetStores(fleet, lambda _uid: None), fleet.promised_units)
    status = {f"{resource.metric_name_prefix}_{metric.name}" for resource in resources() for metric in resource.metrics}
    return status | _families(operator.registry) | _families(extender.registry) | _families(REGISTRY)


@pytest.mark.parametrize("name", expressions.of_status())
def test_those_of_kube_state_metrics_need_nothing_else(name: str) -> None:
    board = BOARDS[name]
    queries = [expressions.label_values(each)[1] for each in expressions.variables(board) if each["type"] == "query"]
    queries += [target["expr"] for panel in expressions.panels(board) for target in panel["targets"]]
    asked = {metric for query in queries for metric in _METRIC.findall(query)}
    assert {metric for metric in asked if not metric.startswith("kube_")} == set()


@pytest.mark.parametrize("name", BOARDS)
def test_panels_do_not_overlap_and_fill_their_lines(name: str) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in BOARDS[name]["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert cells.isdisjoint(taken), panel["title"]
        assert at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[f"{name}-{panel['title']}" for name, panel in PANELS])
def test_each_panel_has_a_description(name: str, panel: dict[str, Any]) -> None:
    assert panel["description"].endswith("."), "a sentence"
    assert panel["datasource"]["uid"] == "$datasource"
    assert panel["targets"]
    if panel["type"] != "table":
        assert panel["fieldConfig"]["defaults"]["unit"]
    for target in panel["targets"]:
        # what is not of one cluster would add up all that one Prometheus has
        assert "$cluster" in target["expr"]
        assert target["datasource"]["uid"] == "$datasource"


def test_all_that_is_asked_for_is_exported() -> None:
    asked = [target["expr"] for _, panel in PANELS for target in panel["targets"]]
    asked += [rule["expr"] for rule in expressions.alerts()]
    known = exported()
    unknown = {
        name for expr in asked for name in _METRIC.findall(expr) if known.isdisjoint({name, _SUFFIX.sub("", name)})
    }
    assert unknown == set()


def test_every_metric_is_in_the_documentation() -> None:
    page = (expressions.CHART.parents[1] / "docs" / "monitoring.md").read_text()
    documented = {_SUFFIX.sub("", name) for name in re.findall(r"^\| `(nodedevice_\w+)[{`]", page, re.MULTILINE)}
    assert documented == {name for name in exported() if name.startswith("nodedevice_")}


def test_every_alert_is_in_the_documentation() -> None:
    page = (expressions.CHART.parents[1] / "docs" / "monitoring.md").read_text()
    documented = re.findall(r"^\| (NodeDevice\w+) \| (\w+) \|", page, re.MULTILINE)
    assert documented == [(rule["alert"], rule["labels"]["severity"]) for rule in expressions.alerts()]


def _families(registry: CollectorRegistry) -> set[str]:
    return {family.name for family in registry.collect()}
