"""A real Prometheus that scrapes what kube-state-metrics serves with our configuration: every panel of its dashboards answers.

What it serves is computed here from NodeDevices and PodDevices, twice: two replicas, whose series must not be added up.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from nodedevice_api import names
from prometheus_client import CollectorRegistry, start_http_server

from tests.cluster.agent_objects import SINCE
from tests.monitoring import expressions, status_objects
from tests.monitoring import kube_state_metrics as ksm
from tests.monitoring.prometheus import Prometheus, Target, run
from tests.monitoring.status_objects import GPU, LATER, MEMORY, NIC
from tests.monitoring.test_kube_state_metrics import CONFIG

_REPLICAS = 2
_OBJECTS: dict[str, Any] = {
    names.NODE_DEVICE: status_objects.node_devices(),
    names.POD_DEVICE: status_objects.pod_devices(),
}
_ASKED: list[tuple[str, str, str]] = [
    (name, panel["title"], target["expr"])
    for name, board in expressions.of_status().items()
    for panel in expressions.panels(board)
    for target in panel["targets"]
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It has scraped both replicas."""
    registry = CollectorRegistry()
    registry.register(ksm.Exposition(ksm.read(CONFIG.read_text()), _OBJECTS))
    with contextlib.ExitStack() as undo:
        targets = []
        for _ in range(_REPLICAS):
            server, thread = start_http_server(0, "127.0.0.1", registry)
            undo.callback(thread.join)
            undo.callback(server.server_close)
            undo.callback(server.shutdown)
            targets.append(Target("kube-state-metrics", f"127.0.0.1:{server.server_port}", {"cluster": "test"}))
        running = undo.enter_context(run(tmp_path_factory.mktemp("p") / "prometheus", targets))
        running.until(f"count(kube_poddevice_created) == {_REPLICAS * 2}", "the first scrapes")
        yield running


@pytest.mark.parametrize(("name", "title", "expr"), _ASKED, ids=[f"{name}-{title}" for name, title, _ in _ASKED])
def test_every_query_is_answered(prometheus: Prometheus, name: str, title: str, expr: str) -> None:
    assert prometheus.query(expressions.filled(expr)), f"{name}: {title}"


def test_every_variable_has_values(prometheus: Prometheus) -> None:
    found = {}
    for board in expressions.of_status().values():
        for variable in expressions.variables(board):
            if variable["type"] == "query":
                found[variable["name"]] = prometheus.label_values(*expressions.label_values(variable))
    assert found == {
        "cluster": ["test"],
        # not what has no status yet
        "resource": [GPU, MEMORY, NIC],
        "node": ["node-a", "node-b", "node-c"],
        "namespace": ["team-a", "team-b"],
    }


@pytest.mark.parametrize(
    ("title", "number"),
    [
        ("Devices", 5 + 2 + 80),
        ("In use", 2 + 2 + 16),
        ("Available", 64),
        ("Unhealthy", 2),
        ("Cordoned", 1),
        ("Share in use", 20 / 85),
        ("Releasing", 1),
        ("Nodes", 3),
        # neither the NICs, which nobody holds, nor where there are no devices
        ("NodeDevices not ready", 2),
        ("Conflicts", 1),
        ("Silent agents", 1),
        ("Device plugins away", 1),
        ("Pending pods", 3),
        ("Memory by model", 8 * 16 * 2**30),
        ("Memory of parts", 80 * 2**30),
        ("Parts in use by device", 0.2),
        ("Largest free piece", 48),
        ("Pods", 2),
        ("Containers", 3),
        ("Namespaces", 2),
        ("Pods with unhealthy devices", 1),
        ("Devices in use", 20),
    ],
)
def test_numbers_are_those_of_the_objects(prometheus: Prometheus, title: str, number: float) -> None:
    (series,) = prometheus.query(_query(title))
    assert float(series["value"][1]) == pytest.approx(number)


@pytest.mark.parametrize(
    ("title", "rows"),
    [
        ("Not ready", {("node-b", GPU, "LeaseExpired"), ("node-b", MEMORY, "LeaseExpired")}),
        ("Unhealthy devices", {("node-a", GPU, "g3", "ReportedUnhealthy"), ("node-b", GPU, "g1", "ReportedUnhealthy")}),
        ("Cordoned devices", {("node-a", GPU, "g2", "fan", "alice", "2026-01-01T12:00:00Z")}),
        ("Pods that use unhealthy devices", {("team-b", "serve", "node-b", f"{GPU}=2,{MEMORY}=16", "g1 Unhealthy")}),
        ("Memory by model", {("Tesla T4",)}),
        ("Longest in use", {("team-a", "train", "node-a", "c0", GPU), ("team-a", "done", "node-a", "c0", GPU)}),
    ],
)
def test_tables_name_what_there_is(prometheus: Prometheus, title: str, rows: set[tuple[str, ...]]) -> None:
    shown = [set(series["metric"].values()) for series in prometheus.query(_query(title))]
    for row in rows:
        assert any(set(row) <= labels for labels in shown), (row, shown)
    assert len(shown) == len(rows) + (title == "Longest in use"), shown


def test_since_when_is_in_milliseconds(prometheus: Prometheus) -> None:
    shown = prometheus.query(_query("Pods that use devices"))
    since = {series["metric"]["pod"]: float(series["value"][1]) for series in shown}
    assert since == {"train": _milliseconds(SINCE), "serve": _milliseconds(LATER)}


@pytest.mark.parametrize(
    ("chosen", "pods"),
    [(MEMORY, {"serve"}), (f"({NIC}|{GPU})", {"train", "serve"}), (NIC, set())],
    ids=["one", "several", "used by no pod"],
)
def test_pods_of_a_resource(prometheus: Prometheus, chosen: str, pods: set[str]) -> None:
    """A PodDevice has its resources in one label: a name that begins as another does is not taken for that."""
    asked = expressions.filled(_asked("Pods that use devices").replace("$resource", chosen))
    assert {series["metric"]["pod"] for series in prometheus.query(asked)} == pods


def _asked(title: str) -> str:
    """The first query of the panel that is called so."""
    return next(expr for _, its, expr in _ASKED if its == title)


def _query(title: str) -> str:
    return expressions.filled(_asked(title))


def _milliseconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp() * 1000
