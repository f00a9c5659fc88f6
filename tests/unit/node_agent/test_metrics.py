"""/metrics, with the current allocations alone; /healthz and /readyz; errors for an unusable address."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from msgspec import structs
from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.resources.devices import Device
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.metrics import MOST_CONTAINERS, AllocationCollector
from nodedevice_api.nodedevice import AllocationStatus
from nodedevice_common import http_server
from prometheus_client import REGISTRY

from tests.fakes.turns import Lines
from tests.unit.node_agent.devicemanager.scenario import GPU, NIC, Scenario, container, device_ids, pod


def held(collector: AllocationCollector) -> dict[tuple[str, ...], float]:
    (family,) = collector.collect()
    return {
        (s.labels["namespace"], s.labels["pod"], s.labels["container"], s.labels["resource_name"]): s.value
        for s in family.samples
    }


def test_allocations_of_one_container_are_added_up_and_of_a_pod_that_is_gone_the_uid_is_known() -> None:
    scenario, collector = Scenario.with_plugin(2), AllocationCollector()
    scenario.run(pod("a", container("one", gpu=2)))
    now = scenario.snapshot(GPU)
    (known,) = now.held
    collector.update(structs.replace(now, held=(known, known, structs.replace(known, pod=None))))
    uid = known.allocation.pod_uid
    assert held(collector) == {("default", "a", "one", GPU): 4, ("", uid, "one", GPU): 2}


def test_by_pod_and_container_and_resource_until_a_pod_is_gone() -> None:
    scenario, collector = Scenario.with_plugin(4, nics=device_ids(2)), AllocationCollector()
    scenario.run(pod("a", container("one", gpu=2, nic=1), container("two", gpu=1)), pod("b", nic=1))
    for name in (GPU, NIC):
        collector.update(scenario.snapshot(name))
    assert held(collector) == {
        ("default", "a", "one", GPU): 2,
        ("default", "a", "two", GPU): 1,
        ("default", "a", "one", NIC): 1,
        ("default", "b", "main", NIC): 1,
    }
    scenario.gone("b")
    collector.update(scenario.snapshot(NIC))
    assert ("default", "b", "main", NIC) not in held(collector)


def test_what_containers_have_by_claims_is_counted_for_each_container() -> None:
    rows = [
        AllocationStatus(namespace="n", name="p", pod_uid="u", container="c", device_ids=["a", "b"]),
        AllocationStatus(namespace="n", name="p", pod_uid="u", container="c", device_ids=["e"]),
        AllocationStatus(pod_uid="u2", container="c", device_ids=["a"]),
        AllocationStatus(namespace="n", name="q", pod_uid="u3", container="c", device_ids=["f"], releasing=True),
    ]
    collector = AllocationCollector()
    collector.update(Scenario.with_plugin(1).snapshot(), rows)
    assert held(collector) == {("n", "p", "c", GPU): 3, ("", "u2", "c", GPU): 1}


def test_the_number_of_containers_has_a_bound() -> None:
    """Of those with allocations, and of those with claims."""
    count = MOST_CONTAINERS + 5
    scenario, collector = Scenario.with_plugin(count), AllocationCollector()
    scenario.run(*(pod(f"p{number:04}", gpu=1) for number in range(count)))
    collector.update(scenario.snapshot())
    assert len(held(collector)) == MOST_CONTAINERS
    rows = [AllocationStatus(pod_uid=f"u{number}", container="c") for number in range(count)]
    collector.update(Scenario.with_plugin(1).snapshot(), rows)
    assert len(held(collector)) == MOST_CONTAINERS


def of_resource(name: str, kind: str) -> dict[str, float]:
    """Samples of that metric by the label that is not the resource's name, if it has one."""
    samples = [sample for family in REGISTRY.collect() if family.name == kind for sample in family.samples]
    found = {tuple(sorted(sample.labels.items())): sample.value for sample in samples}
    mine = {labels: value for labels, value in found.items() if ("resource_name", name) in labels}
    return {"".join(value for key, value in labels if key != "resource_name"): value for labels, value in mine.items()}


def test_a_resource_is_observed_as_it_is_published() -> None:
    devices: list[str | Device] = ["d0", "d1", "d2", Device("d3", healthy=False), "d4"]
    scenario = Scenario.with_plugin(devices, waits_for_runtime=True)
    scenario.run(pod("a", gpu=1), pod("b", gpu=1))
    scenario.gone("b")
    scenario.cordon(GPU, ["d4"])
    scenario.see(pod("c", gpu=9))
    row = AllocationStatus(namespace="n", name="p", pod_uid="u", container="by-claim", device_ids=["x"])
    metrics.observe(scenario.snapshot(), [row])
    assert of_resource(GPU, "nodedevice_agent_devices") == {
        "total": 5,
        "healthy": 4,
        "cordoned": 1,
        "allocated": 1,
        "releasing": 1,
        # of the released one, for a pod that waits
        "reserved": 1,
        "available": 1,
    }
    assert of_resource(GPU, "nodedevice_agent_pods_waiting") == {"": 1}
    assert of_resource(GPU, "nodedevice_agent_endpoint_running") == {"": 1}
    assert {key[2] for key in held(metrics.ALLOCATIONS) if key[3] == GPU} == {"main", "by-claim"}
    scenario.disconnect()
    metrics.observe(scenario.snapshot())
    assert of_resource(GPU, "nodedevice_agent_endpoint_running") == {"": 0}
    metrics.forget(GPU)
    assert of_resource(GPU, "nodedevice_agent_devices") == {}


@pytest.fixture
def health() -> AgentHealth:
    return AgentHealth("node", "api server")


@pytest.fixture
def port(health: AgentHealth) -> Iterator[int]:
    server = metrics.serve("127.0.0.1:0", health)
    yield server.server_port
    server.shutdown()
    server.server_close()


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_ready_when_nothing_is_missing(health: AgentHealth, port: int) -> None:
    assert get(port, "/readyz") == (503, "api server: not yet; node: not yet\n")
    health.report("node")
    health.report("api server", "the lease cannot be renewed")
    assert get(port, "/readyz") == (503, "api server: the lease cannot be renewed\n")
    health.report("api server")
    health.report("never missed")
    assert get(port, "/readyz?verbose") == (200, "ok\n")


def test_healthy_while_the_event_loop_turns(health: AgentHealth, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(port, "/healthz") == (200, "ok\n")
    monkeypatch.setattr(http_server, "HANG_SECONDS", -1.0)
    status, text = get(port, "/healthz")
    assert (status, "the event loop has not turned for" in text) == (503, True)
    monkeypatch.undo()
    health.beat()
    assert get(port, "/healthz") == (200, "ok\n")


def test_metrics_and_unknown_paths(port: int) -> None:
    status, text = get(port, "/metrics")
    assert (status, "_created" in text) == (200, False)
    assert "# TYPE nodedevice_agent_devices gauge" in text
    assert get(port, "/") == (404, "not found; known are /healthz, /readyz, /metrics\n")


@pytest.mark.parametrize(
    "address",
    [
        pytest.param("localhost:", id="no port"),
        pytest.param("not a host:9808", id="no host name"),
        pytest.param("127.0.0.1:{port}", id="a port in use"),
        pytest.param("203.0.113.1:9808", id="an address of another machine"),
    ],
)
def test_an_unusable_address_is_an_error(address: str, health: AgentHealth, port: int) -> None:
    with pytest.raises(AgentSettingsError, match="--http-address"):
        metrics.serve(address.format(port=port), health)


def test_to_forget_a_resource_passes_no_series_of_another() -> None:
    """Hundreds of names are forgotten in one turn of the event loop, when their plugins ended together."""
    names = [f"example.com/forgotten-{number}" for number in range(256)]
    for name in names:
        metrics.begin(name, pre_start_required=True)
        metrics.RESOURCE_DEVICES.labels(name, "total").set(1)
    lines = Lines()
    lines.begin()
    metrics.forget(names[0])
    cost = lines.end()
    assert 0 < cost < 800
    left = {s.labels["resource_name"] for family in metrics.DEVICE_LISTS.collect() for s in family.samples}
    assert left & {*names} == {*names[1:]}
    for name in names[1:]:
        metrics.forget(name)
