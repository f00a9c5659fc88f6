"""The agent's Prometheus metrics, and the server that also provides its health.

Labels are bounded: resource names are few on a node, reasons are a fixed list. They cover this node alone and do not name it:
the scraper adds the node to every series. Allocations are labelled by pod, as a node has a few hundred at most.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from nodedevice_api.nodedevice import AllocationStatus
from nodedevice_common import http_server, tasks
from prometheus_client import REGISTRY, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily

from nodedevice_agent.devicemanager.resources.presence import EndpointState
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.health import AgentHealth

log = logging.getLogger(__name__)

# Containers of one resource that are listed; a kubelet runs 110 pods by default.
MOST_CONTAINERS: Final = 1000

# namespace, pod, container, resource name
_Holder = tuple[str, str, str, str]


class AllocationCollector:
    """The number of devices in each container of this node, by the last snapshot of each resource. The registry collects at every
    scrape, from another thread.
    """

    def __init__(self) -> None:
        self._held: dict[str, dict[_Holder, int]] = {}

    def update(self, now: Snapshot, rows: Iterable[AllocationStatus] = ()) -> None:
        """Replace this resource's metrics, without ended pods. rows: devices in containers by claims, which a snapshot lacks."""
        held: dict[_Holder, int] = defaultdict(int)
        for row in islice(rows, MOST_CONTAINERS):
            if not row.releasing:
                held[row.namespace, row.name or row.pod_uid, row.container, now.resource_name] += len(row.device_ids)
        for one in now.held[:MOST_CONTAINERS]:
            if not one.releasing:
                a, pod = one.allocation, one.pod
                # only the UID of a pod that is gone from the API is known
                namespace, name = (pod.namespace, pod.name) if pod is not None else ("", a.pod_uid)
                held[namespace, name, a.container, now.resource_name] += len(a.device_ids)
        # replaced, never changed: the other thread may be reading it
        self._held = {**self._held, now.resource_name: held}

    def forget(self, resource_name: str) -> None:
        self._held = {name: held for name, held in self._held.items() if name != resource_name}

    def collect(self) -> Iterator[GaugeMetricFamily]:
        family = GaugeMetricFamily(
            "nodedevice_agent_allocated_devices",
            "Devices that are allocated to containers of this node.",
            labels=("namespace", "pod", "container", "resource_name"),
        )
        for held in self._held.values():
            for labels, count in held.items():
                family.add_metric(labels, count)
        yield family


INFO = Gauge(
    "nodedevice_agent_info",
    "1; labels: the agent's version, and its --delivery, also under the former name runtime.",
    ["version", "delivery", "runtime"],
)

RESOURCE_DEVICES = Gauge(
    "nodedevice_agent_devices", "Devices by resource and state, as published.", ["resource_name", "state"]
)
ALLOCATIONS = AllocationCollector()
REGISTRY.register(ALLOCATIONS)
REGISTRY.register(tasks.TaskFailures("nodedevice_agent"))
OFFERED_TWICE = Gauge(
    "nodedevice_agent_offered_twice",
    "Devices that another resource of this node also offers, so that they can be allocated twice.",
    ["resource_name"],
)
ENDPOINT_RUNNING = Gauge(
    "nodedevice_agent_endpoint_running", "1 while the resource's device plugin is connected.", ["resource_name"]
)
REGISTRATIONS = Counter("nodedevice_agent_registrations_total", "Device plugins that registered.", ["resource_name"])
REGISTRATIONS_REFUSED = Counter(
    "nodedevice_agent_registrations_refused_total", "Registrations that were refused.", ["reason"]
)
DEVICE_LISTS = Counter(
    "nodedevice_agent_device_lists_total",
    "Device lists that were read from device plugins; at most 50 a second of one.",
    ["resource_name"],
)
ALLOCATE_SECONDS = Histogram(
    "nodedevice_agent_allocate_seconds",
    "Duration of Allocate calls to device plugins.",
    ["resource_name"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30),
)
ALLOCATE_FAILED = Counter("nodedevice_agent_allocate_failures_total", "Allocate calls that failed.", ["resource_name"])
PRE_START_SECONDS = Histogram(
    "nodedevice_agent_pre_start_seconds",
    "Duration of PreStartContainer calls to device plugins.",
    ["resource_name"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30),
)
PRE_START_FAILED = Counter(
    "nodedevice_agent_pre_start_failures_total", "PreStartContainer calls that failed.", ["resource_name"]
)
ASSIGNED_PARTS = Counter(
    "nodedevice_agent_assigned_parts_total",
    "Pods with parts that a scheduler had assigned, by outcome of the assignment: used, not_fitting or invalid.",
    ["outcome"],
)
CREATION_HOOKS = Counter(
    "nodedevice_agent_gpu_environments_total",
    "Containers whose own environment names GPUs, by outcome: overruled (they have others), withheld (they have none), "
    "exempt or refused.",
    ["outcome"],
)
API_WRITES = Counter(
    "nodedevice_agent_api_writes_total",
    "Writes to the API server, by kind and outcome: ok, or the kind of error.",
    ["kind", "outcome"],
)
WATCH_REQUESTS = Counter(
    "nodedevice_agent_watch_requests_total", "Lists, and watches, that were requested from the API server.", ["request"]
)
WATCHES_STALE = Gauge(
    "nodedevice_agent_watches_stale", "Watches over which the API server has sent nothing for 90 seconds."
)
PUBLISH_SECONDS = Histogram(
    "nodedevice_agent_publish_seconds",
    "Time from a change of a resource until its status is written to the API server.",
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60),
)
CHECKPOINT_SECONDS = Histogram(
    "nodedevice_agent_checkpoint_write_seconds",
    "Duration of a durable write of the whole checkpoint.",
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1),
)
JOURNAL_SECONDS = Histogram(
    "nodedevice_agent_journal_write_seconds",
    "Duration of a durable line in the checkpoint's journal.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.5, 1),
)
CHECKPOINT_FAILING = Gauge(
    "nodedevice_agent_checkpoint_failing", "1 while the whole checkpoint cannot be written, as on a full disk."
)
CHECKPOINT_UNREADABLE = Gauge(
    "nodedevice_agent_checkpoint_unreadable", "1 after a start with an unreadable checkpoint."
)
PODS_WAITING = Gauge(
    "nodedevice_agent_pods_waiting", "Pending pods that are bound here, without devices.", ["resource_name"]
)
RUNTIME_CONNECTED = Gauge(
    "nodedevice_agent_runtime_connected", "1 while the agent is connected to the container runtime as its NRI plugin."
)
NRI_SECONDS = Histogram(
    "nodedevice_agent_nri_request_seconds",
    "Duration of the runtime's NRI requests, of containers without devices too.",
    ["method"],
    # fewer buckets: there is a histogram for each method
    buckets=(0.0005, 0.001, 0.005, 0.01, 0.05, 0.25, 1),
)
CREATE_CONTAINER_SECONDS = Histogram(
    "nodedevice_agent_create_container_seconds",
    "Duration of CreateContainer requests for containers with devices.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1),
)
CONTAINERS_REFUSED = Counter(
    "nodedevice_agent_containers_refused_total",
    "Containers that were refused because their devices were not available.",
)
CONTAINERS_WITHOUT = Gauge(
    "nodedevice_agent_containers_without_devices",
    "Containers that run without the devices they requested.",
    ["resource_name"],
)
POD_RESOURCES_REQUESTS = Counter(
    "nodedevice_agent_pod_resources_requests_total",
    "Calls of the PodResources service.",
    ["server_api_version", "method"],
)
POD_RESOURCES_ERRORS = Counter(
    "nodedevice_agent_pod_resources_errors_total",
    "Calls of the PodResources service that returned an error.",
    ["server_api_version", "method", "code"],
)

_STATES: Final = ("total", "healthy", "cordoned", "allocated", "releasing", "reserved", "available")
_BY_RESOURCE: Final = (
    OFFERED_TWICE,
    ENDPOINT_RUNNING,
    REGISTRATIONS,
    DEVICE_LISTS,
    ALLOCATE_SECONDS,
    ALLOCATE_FAILED,
    PRE_START_SECONDS,
    PRE_START_FAILED,
    PODS_WAITING,
    CONTAINERS_WITHOUT,
)

# The gauges of observe() by resource name: to look one up takes longer than to set it.
_series: Final[dict[str, tuple[Gauge, ...]]] = {}

# Counters start at 0: a rate over time never includes the first value of a new series.
for _kind in ("NodeDevice", "Lease"):
    for _outcome in ("ok", "ApiForbidden", "ApiRefused", "ApiUnreachable"):
        API_WRITES.labels(_kind, _outcome)
for _request in ("list", "watch"):
    WATCH_REQUESTS.labels(_request)


def begin(resource_name: str, *, pre_start_required: bool) -> None:
    """A device plugin is connected: its counters start at 0."""
    DEVICE_LISTS.labels(resource_name)
    ALLOCATE_SECONDS.labels(resource_name)
    ALLOCATE_FAILED.labels(resource_name)
    if pre_start_required:
        PRE_START_SECONDS.labels(resource_name)
        PRE_START_FAILED.labels(resource_name)


def observe(now: Snapshot, rows: Iterable[AllocationStatus] = ()) -> None:
    """The metrics of a published resource. rows: devices in containers by claims, which a snapshot lacks."""
    name = now.resource_name
    series = _series.get(name)
    if series is None:
        by_state = (RESOURCE_DEVICES.labels(name, state) for state in _STATES)
        series = _series[name] = (*by_state, PODS_WAITING.labels(name), ENDPOINT_RUNNING.labels(name))
    counts = (getattr(now, state) for state in _STATES)
    for gauge, value in zip(series, (*counts, len(now.pending), now.state is EndpointState.RUNNING), strict=True):
        gauge.set(value)
    ALLOCATIONS.update(now, rows)


def forget(resource_name: str) -> None:
    """End the series of a forgotten resource. Full label sets are used, because a search by one label scans all series."""
    ALLOCATIONS.forget(resource_name)
    _series.pop(resource_name, None)
    for state in _STATES:
        RESOURCE_DEVICES.remove(resource_name, state)
    for metric in _BY_RESOURCE:
        metric.remove(resource_name)


def serve(
    address: str, health: AgentHealth, protection: http_server.Protection = http_server.OPEN
) -> http_server.BoundedServer:
    """Start serving on HOST:PORT (port 0: any; no host: all addresses). Raises AgentSettingsError."""
    try:
        host, port = http_server.parse_address(address)
        checks = {"/healthz": health.live, "/readyz": health.ready}
        server = http_server.serve((host, port), checks, REGISTRY, protection)
    except OSError as exc:
        raise AgentSettingsError(f"--http-address {address}: {exc.strerror}") from exc
    except ValueError as exc:
        raise AgentSettingsError(f"--http-address {address!r}: must be HOST:PORT, such as 127.0.0.1:9808") from exc
    log.info("serving http", extra={"address": f"{host}:{server.server_port}"})
    return server
