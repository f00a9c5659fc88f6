"""The agent's settings: flag, else environment variable, else YAML or JSON file, else a default that works.

The file's keys are the flags' names in camelCase, and `plugins` for the built-in device plugins. An unknown key is an error.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from nodedevice_api import names
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_common import settings_loader
from nodedevice_common.http_server import Authentication
from nodedevice_common.logs import LogFormat, LogLevel

from nodedevice_agent.devicemanager.allocation import topology
from nodedevice_agent.devicemanager.allocation.allocate_once import ANY_RESOURCE, AllocateRetry
from nodedevice_agent.errors import AgentSettingsError
from nodedevice_agent.lib.config_rules import settings_problems
from nodedevice_agent.plugins.settings import PluginSettings

Delivery = Literal["none", "nri", "kubelet", "auto"]
TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]
DeviceOwnershipSetting = Literal["auto", "host", "container"]

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
# a list such as `0-1,4`
ONLINE_NODES = Path("/sys/devices/system/node/online")
# the kernel's own limit of NUMA nodes
_MAX_NUMA_NODE = 1023
_NUMA_RANGE = re.compile(r"(\d{1,4})(?:-(\d{1,4}))?")


class AgentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One field for each flag, with its unit, and the reason for its default."""

    # name of the Node that this agent runs on; a DaemonSet takes it from spec.nodeName
    node_name: str = ""
    # kubeconfig file; unset: the files of $KUBECONFIG, else ~/.kube/config, else the pod's ServiceAccount
    kubeconfig: str = ""
    # where device plugins register; not the kubelet's directory /var/lib/kubelet/device-plugins
    plugin_dir: str = "/var/lib/nodedevice/device-plugins"
    # state that survives a restart: the checkpoint, and simulated devices
    state_dir: str = "/var/lib/nodedevice"
    # socket of the PodResources service; unset: pod-resources/kubelet.sock in state_dir; "": none
    pod_resources_socket: str | None = None
    # directory of plugin sockets, watched like the kubelet's plugins_registry; empty: none. Plugins in a directory that the
    # kubelet watches as well register twice
    plugins_registry_dir: str = ""
    # address of /healthz, /readyz and /metrics; loopback, so that the default opens nothing to the network
    http_address: str = "127.0.0.1:9808"
    # who may read /metrics. token: bearers of a token whose account may get that path. Probes stay open
    metrics_authentication: Authentication = "none"
    # PEM file with the certificate chain of http_address, read again when it changes; empty: plain HTTP
    tls_certificate: str = ""
    # PEM file with its key
    tls_key: str = ""
    # namespace of the agents' Leases; agents and operator need the same value
    leases_namespace: str = names.AGENTS_NAMESPACE
    # namespace of the release, whose pods are exempt as in plugins.nvml.exempt
    namespace: str = names.SYSTEM_NAMESPACE
    # how devices reach containers. nri: the agent allocates, and injects through the container runtime. kubelet: the kubelet
    # allocates, and the agent is its device plugin. none: devices are only counted and recorded. auto: nri if its socket exists
    # at the agent's first start, else kubelet; later starts keep that choice
    delivery: Delivery = "auto"
    # former name of delivery, used while that is auto; for one release
    runtime: Delivery | None = None
    # with delivery none: advertise devices although containers get nothing
    advertise_without_injection: bool = False
    # the kubelet's root directory, with device-plugins and pod-resources
    kubelet_dir: str = "/var/lib/kubelet"
    # also publish what the kubelet's device manager serves, read-only; needs its pod-resources directory
    observe: bool = True
    # also publish what DRA drivers offer on this node, read-only; needs observe
    observe_dra: bool = True
    # NRI socket of the container runtime; the default of containerd and CRI-O
    nri_socket: str = "/var/run/nri/nri.sock"
    # order among NRI plugins, two digits; after plugins that prepare a container, before plugins that inspect it
    nri_index: Annotated[str, msgspec.Meta(pattern="^[0-9]{2}$")] = "10"
    # how long the runtime may be disconnected while devices stay advertised; longer than a restart takes
    runtime_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    # with nri: owner of device files in containers. host: as on the host. container: the container's user and group, unless
    # root. auto: as the runtime's option device_ownership_from_security_context, or host if that cannot be read
    device_ownership: DeviceOwnershipSetting = "auto"
    # the runtime's configuration file, read for device_ownership auto; empty: the default of containerd or CRI-O
    runtime_config: str = ""
    # NUMA alignment of devices, by the names of the kubelet's Topology Manager policies
    topology_policy: TopologyPolicy = "none"
    # align devices for each container, or for the whole pod
    topology_scope: TopologyScope = "container"
    # NUMA nodes of the machine, such as "0-1,4"; empty: as the kernel reports them
    numa_nodes: str = ""
    # changes of health or presence within the window that make a device unhealthy; 0: never. A device that fails once and
    # recovers makes two
    flapping_changes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    # window in which changes are counted
    flapping_window_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # time without a change after which such a device is healthy again
    flapping_quiet_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # by resource name, * for all others: whether a failed Allocate is repeated; always if not set. never: for plugins that find
    # the pod by annotations and order, such as HAMi's and Volcano's. Built-in plugins are always called again
    allocate_retry: dict[str, AllocateRetry] = {}
    # least serious level that is logged
    log_level: LogLevel = "info"
    # text for people, json for log collectors
    log_format: LogFormat = "text"
    # host directories in which NodeDeviceConfigs may name paths, so that these cannot give any file to a pod
    allowed_host_paths: list[str] = msgspec.field(default_factory=lambda: ["/dev"])
    # built-in device plugins; NodeDeviceConfigs that select the node take precedence
    plugins: PluginSettings = msgspec.field(default_factory=PluginSettings)

    def __post_init__(self) -> None:
        if self.delivery == "auto" and self.runtime is not None:
            msgspec.structs.force_setattr(self, "delivery", self.runtime)
        msgspec.structs.force_setattr(self, "runtime", None)


def load(file: Path | None, given: Mapping[str, Any]) -> AgentSettings:
    """Valid settings of one node's agent. Raises AgentSettingsError that names the key."""
    settings = combined(file, given)
    if not settings.node_name:
        raise AgentSettingsError("--node-name is missing: set it to the name of the Node this agent runs on")
    if len(settings.node_name) > 253 or not _NODE_NAME.fullmatch(settings.node_name):
        raise AgentSettingsError(
            f"--node-name {settings.node_name[:80]!r} is not the name of a Node: lower-case letters, digits, - and ."
        )
    if settings.advertise_without_injection and settings.delivery != "none":
        raise AgentSettingsError(
            f"--advertise-without-injection is for --delivery none, and the delivery is {settings.delivery}: omit one of them"
        )
    for resource_name in settings.allocate_retry.keys() - {ANY_RESOURCE}:
        if problem := resource_name_problem(resource_name):
            raise AgentSettingsError(f"allocateRetry: {resource_name[:400]!r}: {problem}; * is every other resource")
    for flag, directory in (("--plugin-dir", settings.plugin_dir), ("--state-dir", settings.state_dir)):
        # it would be the working directory, and every socket there would be removed
        if not directory:
            raise AgentSettingsError(f"{flag} is empty: set a directory, or omit the flag for the default")
    # the paths of the settings file are checked with that file
    if given.get("allowed_host_paths"):
        for problem in settings_problems({"allowedHostPaths": settings.allowed_host_paths}):
            raise AgentSettingsError(problem)
    # what a relative path means depends on where the agent was started
    for field in ("plugin_dir", "state_dir", "plugins_registry_dir", "kubelet_dir", "runtime_config"):
        place, flag = Path(getattr(settings, field) or "/"), f"--{field.replace('_', '-')}"
        if not place.is_absolute():
            why = f"is a relative path: set an absolute one, such as {place.absolute()}"
            raise AgentSettingsError(f"{flag} {place} {why}")
    return settings


def combined(file: Path | None, given: Mapping[str, Any]) -> AgentSettings:
    """The file's settings, with flags and environment (by field) on top; --node-name may be missing. Raises AgentSettingsError."""
    try:
        return settings_loader.load(AgentSettings, file, given, settings_problems)
    except settings_loader.SettingProblem as exc:
        raise AgentSettingsError(str(exc)) from exc


def read_topology(policy: str, scope: str, numa_nodes: str = "", online: Path = ONLINE_NODES) -> topology.Topology:
    """The topology to align devices by. numa_nodes: a list in the kernel's format; empty: the kernel's list.

    Raises AgentSettingsError for an invalid list, and for a policy on a machine with more nodes than it can align.
    """
    nodes = _numa_nodes(numa_nodes) if numa_nodes.strip() else _online_nodes(online)
    chosen = topology.TopologyPolicy(policy)
    if chosen is not topology.TopologyPolicy.NONE and len(nodes) > topology.MAX_NUMA_NODES:
        raise AgentSettingsError(
            f"--topology-policy {policy} takes at most {topology.MAX_NUMA_NODES} NUMA nodes and this machine has {len(nodes)}; "
            "set --topology-policy none, or name the nodes that have devices with --numa-nodes"
        )
    return topology.Topology(chosen, topology.TopologyScope(scope), nodes)


def _online_nodes(online: Path) -> tuple[int, ...]:
    try:
        return _numa_nodes(online.read_text(encoding="ascii"))
    except FileNotFoundError:
        # a kernel without NUMA support has one node
        return (0,)
    except (OSError, UnicodeDecodeError) as exc:
        raise AgentSettingsError(f"{online} cannot be read ({exc}); set --numa-nodes, such as 0") from exc


def _numa_nodes(text: str) -> tuple[int, ...]:
    nodes: set[int] = set()
    for part in text.strip().split(","):
        found = _NUMA_RANGE.fullmatch(part.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if first > last or last > _MAX_NUMA_NODE:
            raise AgentSettingsError(f"NUMA nodes {text.strip()[:80]!r}: must be a list such as 0 or 0-1,4")
        nodes.update(range(first, last + 1))
    return tuple(sorted(nodes))
