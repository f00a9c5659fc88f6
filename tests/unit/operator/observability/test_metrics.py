"""What operator and extender measure: names, kinds and labels are an interface, to dashboards and alerts."""

from typing import Any

import pytest
from nodedevice_operator import __version__
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.stores import KINDS as FLEET_KINDS
from nodedevice_operator.informers.store import Cache, Store, Stores
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.operator_model import node_device

# of the process, of tasks, and of what is stored
ELSEWHERE = ("process_", "nodedevice_operator_task", "nodedevice_extender_task")
OPERATOR = {
    "info": ("gauge", ("version",)),
    "reconcile_duration_seconds": ("histogram", ()),
    "change_to_node_seconds": ("histogram", ()),
    "waiting_nodes": ("gauge", ()),
    "failing_nodes": ("gauge", ()),
    "reconcile_failures": ("counter", ()),
    "api_writes": ("counter", ("kind", "verb", "outcome")),
    "drift_repairs": ("counter", ("cause",)),
    "events_lost": ("counter", ()),
    "agents": ("gauge", ("state",)),
    "agents_silent_together": ("gauge", ()),
    "required_plugins_names": ("gauge", ()),
    "leader": ("gauge", ()),
}
EXTENDER = {
    "info": ("gauge", ("version",)),
    "requests": ("counter", ("verb", "outcome")),
    "request_seconds": ("histogram", ("verb",)),
    "bind_conflicts": ("counter", ()),
    "rejected_connections": ("counter", ("reason",)),
    "api_writes": ("counter", ("kind", "verb", "outcome")),
    "active": ("gauge", ()),
    "unseen_binds": ("gauge", ()),
}
BUCKETS = {
    "nodedevice_operator_reconcile_duration_seconds": "0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 10.0",
    "nodedevice_operator_change_to_node_seconds": "0.005 0.01 0.025 0.05 0.1 0.15 0.25 0.5 1.0 2.5 10.0 60.0",
    "nodedevice_extender_request_seconds": "0.0005 0.001 0.002 0.004 0.008 0.015 0.03 0.06 0.125 0.25 0.5 1.0 5.0",
}


@pytest.mark.parametrize(
    ("made", "prefix", "expected"),
    [(Metrics, "nodedevice_operator_", OPERATOR), (ExtenderMetrics, "nodedevice_extender_", EXTENDER)],
    ids=["operator", "extender"],
)
def test_each_metric_has_its_name_its_kind_and_its_labels(
    made: Any, prefix: str, expected: dict[str, tuple[str, tuple[str, ...]]]
) -> None:
    registry = made().registry
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for family in registry.collect():
        assert family.documentation.strip()
        if not family.name.startswith(ELSEWHERE):
            # a metric of which nothing was counted has labels, and no series
            metric: Any = registry._names_to_collectors[family.name]
            found[family.name.removeprefix(prefix)] = family.type, metric._labelnames
    assert found == expected
    assert registry.get_sample_value(f"{prefix}info", {"version": __version__}) == 1
    names = {family.name for family in registry.collect()}
    assert {"process_cpu_seconds", f"{prefix}task_failures"} <= names


def test_durations_are_counted_in_these_steps() -> None:
    histograms: list[Any] = [Metrics().reconcile_seconds, Metrics().change_to_node_seconds, ExtenderMetrics().seconds]
    found = {each._name: " ".join(str(bound) for bound in each._kwargs["buckets"]) for each in histograms}
    assert found == BUCKETS


def test_each_cause_of_a_repair_is_there_from_the_start() -> None:
    value = Metrics().registry.get_sample_value
    for cause in ("changed", "zeroed", "removed"):
        assert value("nodedevice_operator_drift_repairs_total", {"cause": cause}) == 0


def test_what_the_operator_has_stored_is_counted_at_each_scrape() -> None:
    metrics, cache = Metrics(), Cache()
    metrics.watch(cache)
    cache.node_devices.put(node_device(total=3))
    labels = {"resource_name": "example.com/gpu", "state": "total"}
    assert metrics.registry.get_sample_value("nodedevice_operator_devices", labels) == 3


def test_what_the_extender_has_stored_and_promised_is_counted_at_each_scrape() -> None:
    metrics, stores = ExtenderMetrics(), Stores({kind.name: Store() for kind in FLEET_KINDS}, ("x",))
    promised: dict[str, int] = {}
    metrics.watch(stores, lambda: promised)
    value = metrics.registry.get_sample_value
    assert {kind.name: value("nodedevice_extender_objects", {"kind": kind.name}) for kind in FLEET_KINDS} == {
        kind.name: 0 for kind in FLEET_KINDS
    }
    stores.stores["nodedevices"].put(node_device())
    assert value("nodedevice_extender_objects", {"kind": "nodedevices"}) == 1
    promised |= {f"example.com/{number:03}": number for number in range(101)}
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/099"}) == 99
    # a bounded number of names
    assert value("nodedevice_extender_promised_parts", {"resource": "example.com/100"}) is None
