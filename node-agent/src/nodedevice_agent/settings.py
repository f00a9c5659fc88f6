"""The agent's settings: a YAML or JSON file, over it the environment, over it flags. What is not said has a default that works.

The file's keys are the flags' names in camelCase, and `plugins` for the built-in device plugins. An unknown key is refused by name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from nodedevice_api import names
from nodedevice_common import settings_loader
from nodedevice_common.logs import LogFormat, LogLevel

from nodedevice_agent.errors import SettingsError
from nodedevice_agent.plugins.settings import PluginSettings

Runtime = Literal["none", "nri", "kubelet", "auto"]
TopologyPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
TopologyScope = Literal["container", "pod"]

_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One field a flag; each says why its default is what it is."""

    # the Node this agent speaks for; a DaemonSet sets it from spec.nodeName
    node_name: str = ""
    # file with the API server's address and credentials; empty: the pod's ServiceAccount, else $KUBECONFIG or ~/.kube/config
    kubeconfig: str = ""
    # where device plugins register; beside the kubelet's own (/var/lib/kubelet/device-plugins), which stays the kubelet's
    plugin_dir: str = "/var/lib/nodedevice/device-plugins"
    # what has to survive a restart: the checkpoint, and the state of simulated devices
    state_dir: str = "/var/lib/nodedevice"
    # where monitors ask which pod holds which device; unset: pod-resources/kubelet.sock in state_dir; "": not served
    pod_resources_socket: str | None = None
    # where plugins announce themselves by a socket (the kubelet's is /var/lib/kubelet/plugins_registry); empty: nowhere,
    # because few plugins do, and a directory that the kubelet watches too would have its plugins registered twice
    plugins_registry_dir: str = ""
    # /healthz, /readyz and /metrics; loopback, so that nothing is open to the network unasked
    http_address: str = "127.0.0.1:9808"
    # where this agent's Lease is kept; the operator must be told the same
    leases_namespace: str = names.AGENTS_NAMESPACE
    # how devices reach containers. none: they are counted and recorded only; nri: through the container runtime; kubelet: the
    # kubelet gives them out, and this agent is its device plugin; auto: nri where its socket is there at the first start, else
    # kubelet, and so ever after
    runtime: Runtime = "none"
    # the kubelet's own directory, of which device-plugins and pod-resources are used where the kubelet allocates
    kubelet_dir: str = "/var/lib/kubelet"
    # the container runtime's NRI socket, where containerd and CRI-O have it unless told otherwise
    nri_socket: str = "/var/run/nri/nri.sock"
    # the place among the runtime's NRI plugins; in the middle: after those that prepare a container, before those that look at it
    nri_index: Annotated[str, msgspec.Meta(pattern="^[0-9]{2}$")] = "10"
    # how long the runtime may be away before devices are no longer advertised: longer than it takes to restart
    runtime_grace_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 10.0
    # whether a container's devices have to be on NUMA nodes near each other; none: as a kubelet that was not told otherwise
    topology_policy: TopologyPolicy = "none"
    # whose devices are aligned together: a container's, or the whole pod's
    topology_scope: TopologyScope = "container"
    # the machine's NUMA nodes, such as "0-1,4"; empty: as the kernel says
    numa_nodes: str = ""
    # a device whose health changes so often within the window counts as unhealthy until it has been quiet; 0: never.
    # Two changes are a device that failed once and came back; the third says that it will not settle
    flapping_changes: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 3
    flapping_window_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    flapping_quiet_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 10.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    # the built-in device plugins of this node
    plugins: PluginSettings = msgspec.field(default_factory=PluginSettings)


def load(file: Path | None, given: Mapping[str, Any]) -> Settings:
    """Settings to run the agent with: as combined, and of a node. Raises SettingsError that names the key."""
    settings = combined(file, given)
    if not settings.node_name:
        raise SettingsError("--node-name is missing: the name of the Node this agent runs on")
    if len(settings.node_name) > 253 or not _NODE_NAME.fullmatch(settings.node_name):
        raise SettingsError(
            f"--node-name {settings.node_name[:80]!r} is not the name of a Node: lower-case letters, digits, - and ."
        )
    for flag, directory in (("--plugin-dir", settings.plugin_dir), ("--state-dir", settings.state_dir)):
        # it would be the one that the agent was started in, and every socket there is cleared away
        if not directory:
            raise SettingsError(f"{flag} is empty: name a directory, or leave it out for the usual one")
    return settings


def combined(file: Path | None, given: Mapping[str, Any]) -> Settings:
    """Settings of the file, with flags and environment (by field name) on top; --node-name may be missing.

    Raises SettingsError that names the key.
    """
    try:
        return settings_loader.load(Settings, file, given)
    except settings_loader.SettingProblem as exc:
        raise SettingsError(str(exc)) from exc
