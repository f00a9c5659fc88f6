"""The pages that kubelet and Prometheus ask for."""

import socket
import urllib.error
import urllib.request

import pytest
from nodedevice_common import observability
from nodedevice_operator import probes as http
from nodedevice_operator.errors import OperatorSettingsError, Unreachable
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.health import ApiHealth, Health
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.nodedevice import StoredCondition

from tests.fakes.operator.operator_model import node_device

LOOPBACK = ("127.0.0.1", 0)


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address[0]}:{address[1]}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_pages_show_what_is_wrong_and_only_a_hang_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiHealth("https://api")
    missing: list[str] = ["the list of Nodes is not complete"]
    health = Health(api, lambda: tuple(missing))
    address = http.serve(LOOPBACK, health, Metrics().registry)
    assert get(address, "/healthz") == (200, "ok\n")
    assert get(address, "/readyz") == (503, "not ok\nthe list of Nodes is not complete\n")
    missing.clear()
    assert get(address, "/readyz?verbose") == (200, "ok\n")
    api.failed(Unreachable("get", "nodes", "refused"))
    assert get(address, "/healthz") == (200, "ok\nAPI server https://api is unreachable: refused\n")
    assert get(address, "/readyz")[0] == 503
    monkeypatch.setattr(observability, "HANG_SECONDS", -1.0)
    assert get(address, "/healthz")[0] == 503
    assert get(address, "/nothing")[0] == 404


def test_an_address_that_is_taken_is_an_error_of_ours() -> None:
    with socket.create_server(LOOPBACK) as taken, pytest.raises(OperatorSettingsError, match="cannot be used"):
        http.serve(taken.getsockname(), Health(ApiHealth(""), tuple), Metrics().registry)


def test_metrics_of_the_cache_have_bounded_labels() -> None:
    cache, metrics = Cache(), Metrics()
    metrics.watch(cache)
    conflict = {
        "Conflict": StoredCondition("True", "ForeignOwner", "", "", 1),
        "Ready": StoredCondition("False", "", "", "", 1),
    }
    for number in range(130):
        cache.node_devices.put(node_device(f"example.com/r{number:03}", total=2, healthy=1, resource_version=1))
    cache.node_devices.put(node_device("example.com/r000", node="node-b", total=3, conditions=conflict))
    value = metrics.registry.get_sample_value
    devices = "nodedevice_operator_devices"
    assert value(devices, {"resource_name": "example.com/r000", "state": "total"}) == 5
    assert value(devices, {"resource_name": "example.com/r001", "state": "healthy"}) == 1
    assert value(devices, {"resource_name": "(other)", "state": "total"}) == 60
    assert value("nodedevice_operator_nodedevices", {"resource_name": "example.com/r000", "ready": "False"}) == 1
    assert value("nodedevice_operator_nodedevices", {"resource_name": "(other)", "ready": "Unknown"}) == 30
    assert value("nodedevice_operator_conflicts") == 1
