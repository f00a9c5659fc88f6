"""The agent's Prometheus metrics. Labels are bounded: resource names are few on a node, reasons are words of ours."""

from prometheus_client import Counter, Gauge, Histogram

RESOURCE_DEVICES = Gauge(
    "nodedevice_agent_devices", "Devices by resource and state, as published.", ["resource_name", "state"]
)
REGISTRATIONS = Counter("nodedevice_agent_registrations_total", "Device plugins that registered.", ["resource_name"])
REGISTRATIONS_REFUSED = Counter(
    "nodedevice_agent_registrations_refused_total", "Registrations that were refused.", ["reason"]
)
ALLOCATE_SECONDS = Histogram(
    "nodedevice_agent_allocate_seconds",
    "Duration of Allocate calls to device plugins.",
    ["resource_name"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5, 30),
)
ALLOCATE_FAILED = Counter("nodedevice_agent_allocate_failures_total", "Allocate calls that failed.", ["resource_name"])
API_WRITES = Counter("nodedevice_agent_api_writes_total", "Writes sent to the API server.", ["kind", "outcome"])
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
CHECKPOINT_UNREADABLE = Gauge(
    "nodedevice_agent_checkpoint_unreadable", "1 after a start with an unreadable checkpoint."
)
PODS_WAITING = Gauge("nodedevice_agent_pods_waiting", "Pods bound here that wait for devices.", ["resource_name"])
RUNTIME_CONNECTED = Gauge(
    "nodedevice_agent_runtime_connected", "1 while the container runtime takes this agent as its NRI plugin."
)
CREATE_CONTAINER_SECONDS = Histogram(
    "nodedevice_agent_create_container_seconds",
    "Duration of answering the runtime for a container that asks for devices.",
    buckets=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1),
)
CONTAINERS_REFUSED = Counter(
    "nodedevice_agent_containers_refused_total", "Creations that were refused because devices were not there."
)
CONTAINERS_WITHOUT = Gauge(
    "nodedevice_agent_containers_without_devices",
    "Containers that run without the devices they asked for.",
    ["resource_name"],
)
POD_RESOURCES_REQUESTS = Counter(
    "nodedevice_agent_pod_resources_requests_total",
    "Calls of the PodResources service.",
    ["server_api_version", "method"],
)
POD_RESOURCES_ERRORS = Counter(
    "nodedevice_agent_pod_resources_errors_total",
    "Calls of the PodResources service that were answered with an error.",
    ["server_api_version", "method", "code"],
)
