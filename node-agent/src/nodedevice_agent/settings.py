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
from nodedevice_agent.plugins.checks import check_path
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

    # the name of the Node this agent runs on; a DaemonSet sets it from spec.nodeName
    node_name: str = ""
    # file with the API server's address and credentials; empty: the pod's ServiceAccount, else $KUBECONFIG or ~/.kube/config
    kubeconfig: str = ""
    # where device plugins register; separate from the kubelet's plugin directory (/var/lib/kubelet/device-plugins)
    plugin_dir: str = "/var/lib/nodedevice/device-plugins"
    # for the state that must survive a restart: the checkpoint, and simulated devices
    state_dir: str = "/var/lib/nodedevice"
    # socket of the PodResources service for monitoring; unset: pod-resources/kubelet.sock in state_dir; "": not served
    pod_resources_socket: str | None = None
    # watched for sockets of plugins, as the kubelet watches /var/lib/kubelet/plugins_registry; empty: not watched. Few plugins use
    # it, and those in a directory that the kubelet watches too would register twice
    plugins_registry_dir: str = ""
    # address of /healthz, /readyz and /metrics; loopback, so that nothing is open to the network by default
    http_address: str = "127.0.0.1:9808"
    # who may read /metrics; token: bearers of a token whose account may get that path; probes stay open
    metrics_authentication: Authentication = "none"
    # file of the certificate chain of http_address, in PEM; read again when it changes; empty: plain HTTP
    tls_certificate: str = ""
    # file of its key, in PEM
    tls_key: str = ""
    # namespace of this agent's Lease; the operator needs the same value
    leases_namespace: str = names.AGENTS_NAMESPACE
    # the release's own namespace: of its pods nothing is withheld, see plugins.nvml.exempt
    namespace: str = names.SYSTEM_NAMESPACE
    # how devices reach containers. nri: the agent allocates, and injects through the container runtime. kubelet: the kubelet
    # allocates, and this agent is its device plugin. auto: nri if its socket exists at the first start, else kubelet, and the same
    # at every later start. none: they do not, and devices are only counted and recorded. auto, so that no pod that was given a
    # device starts without it because a flag was forgotten
    delivery: Delivery = "auto"
    # the former name of delivery, used where that is auto; for one release
    runtime: Delivery | None = None
    # with delivery none: whether devices are advertised all the same, to pods whose containers then get nothing
    advertise_without_injection: bool = False
    # the kubelet's root directory; device-plugins and pod-resources in it are used where the kubelet allocates
    kubelet_dir: str = "/var/lib/kubelet"
    # whether what the kubelet's own device manager serves is published too, untouched; needs its pod-resources directory
    observe: bool = True
    # whether what DRA drivers offer on this node is published too, untouched; not without observe
    observe_dra: bool = True
    # the container runtime's NRI socket; the default of containerd and CRI-O
    nri_socket: str = "/var/run/nri/nri.sock"
    # order among the runtime's NRI plugins; low: after plugins that prepare a container, before those that inspect it
    nri_index: Annotated[str, msgspec.Meta(pattern="^[0-9]{2}$")] = "10"
    # how long the runtime may be disconnected before devices are no longer advertised: longer than a restart takes
    runtime_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    # with nri, whose device files in containers are. host: the owner's of the host's file. container: the container's own user's
    # and group's, where they are not root. auto: as the runtime's option device_ownership_from_security_context has it; where that
    # cannot be read, the host's, as it is off by default
    device_ownership: DeviceOwnershipSetting = "auto"
    # the runtime's configuration file, where auto reads it; empty: the default of containerd or CRI-O
    runtime_config: str = ""
    # NUMA alignment of a container's devices; none: the kubelet's default
    topology_policy: TopologyPolicy = "none"
    # whether devices are aligned for each container, or for the whole pod
    topology_scope: TopologyScope = "container"
    # the machine's NUMA nodes, such as "0-1,4"; empty: read from the kernel
    numa_nodes: str = ""
    # how many changes of health, or of presence in the list, within the window make a device unhealthy for the quiet time;
    # 0: never. Two changes are a device that failed once and recovered; a third one means that it keeps failing
    flapping_changes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    # the window in which changes are counted
    flapping_window_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # how long such a device must not have changed before it is healthy again
    flapping_quiet_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    # by resource name (* for all others): whether Allocate is called again after a failure; always if not set. never: at most once
    # for a container, for plugins that find a call's pod by annotations and order, such as HAMi's; most know devices alone, and
    # built-in plugins are always called again
    allocate_retry: dict[str, AllocateRetry] = {}
    # what is logged: this and what is more serious
    log_level: LogLevel = "info"
    # text is for people, json for a collector of logs
    log_format: LogFormat = "text"
    # below which NodeDeviceConfigs may name paths of the host; whoever may write them could give any file of it to a pod otherwise
    allowed_host_paths: list[str] = msgspec.field(default_factory=lambda: ["/dev"])
    # the built-in device plugins of this node; NodeDeviceConfigs that select it come before them
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
    for path in settings.allowed_host_paths:
        try:
            check_path("allowedHostPaths", path)
        except ValueError as exc:
            raise AgentSettingsError(str(exc)) from exc
    _check_absolute(settings)
    return settings


def _check_absolute(settings: AgentSettings) -> None:
    """Raises AgentSettingsError: what a relative path means depends on where the agent was started."""
    for field in ("plugin_dir", "state_dir", "plugins_registry_dir", "kubelet_dir", "runtime_config"):
        path = Path(getattr(settings, field) or "/")
        if not path.is_absolute():
            flag = f"--{field.replace('_', '-')}"
            raise AgentSettingsError(
                f"{flag} {path} is a relative path: set an absolute one, such as {path.absolute()}"
            )


def combined(file: Path | None, given: Mapping[str, Any]) -> AgentSettings:
    """Settings of the file, with flags and environment (by field name) on top; --node-name may be missing.

    Raises AgentSettingsError that names the key.
    """
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
