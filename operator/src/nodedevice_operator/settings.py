"""Settings of the operator: flag, then environment variable, then configuration file, then default.

The file is YAML or JSON with the same names in camelCase. A key that is not known is an error: a typo must not be a default.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from nodedevice_api import names
from nodedevice_api.extended_resources import resource_name_problem
from nodedevice_common import settings_loader
from nodedevice_common.http_server import Authentication, parse_address
from nodedevice_common.logs import LogFormat, LogLevel

from nodedevice_operator.errors import OperatorSettingsError
from nodedevice_operator.leases.leader_election import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from nodedevice_operator.remediation.eviction_policy import ANY_RESOURCE, Policy

# What the API server accepts as the name of a namespace: anything else could change the path of a request.
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# What a label may have as its value.
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# A resource name, or a part of one with * for the rest.
NAME_PATTERN: Final = re.compile(r"[-A-Za-z0-9_./*]{1,308}")


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set.

    kubeconfig: file with the API server and credentials; unset: the pod's service account, or ~/.kube/config outside of one.
    http_address: where /healthz, /readyz and /metrics are served; port 0 lets the system choose one.
    metrics_authentication: who may read /metrics; token: bearers of a token whose account may get that path; probes stay open.
    tls_certificate, tls_key: files of a certificate chain and its key, in PEM; read again when they change. Empty: plain HTTP.
    leases_namespace: where the agents' Leases are; the agents need the same setting.
    agent_poll_seconds: how often the agents' Leases are listed. They last 60 s and are renewed every 20: a shorter interval only
        detects a dead agent sooner.
    agent_grace_seconds: how long after its Lease has expired the free devices of a silent agent stay advertised; as long as a
        kubelet keeps the devices of a stopped plugin.
    leader_elect: only the operator that holds the Lease nodedevice-operator writes; turn off only for a single process.
    namespace: where that Lease is; unset: the namespace of the pod, or of the kubeconfig's context, or nodedevice-system.
    instance: name of the Helm release. The objects that the operator creates (policy, PodDevices, Lease) have the label
        app.kubernetes.io/instance with it. Empty: no such label.
    leader_lease_seconds: how long that Lease lasts. After a crash another operator takes over when it has expired, and an eighth
        later at most; the holder renews it four times in that time, and stops writing after three quarters of it without a renewal.
        While the API server responds slowly it lasts five times the slowest response, 20 s at most.
    watchdog_seconds: how often the process checks that watches deliver all changes; 0: never. A check reads the
        metadata of every object: for 10,000 some 0.7 s of the API server's CPU and 0.1 s of ours, 0.7 % of a core in two minutes.
    required_plugins: keep the policy that makes pods wait for their node's agent, for nodes of the delivery nri.
    required_plugin_names: names that the policy may hold, with * for any characters; other names of such nodes are not advertised.
    mark_waiting_pods: before a resource is advertised for the first time, have that policy mark the pods that wait for it already.
        It takes the rights to list and patch pods. Without it such a pod could start without its device while the agent is away.
    observe_dra: count the ResourceSlices of several nodes, by driver, if the API server has any; agents show the others.
    node_taint: taint Nodes with broken devices (nodedevice.io/unhealthy-devices, NoSchedule); off removes the taint.
    node_labels: sum up each resource in labels of its Node, such as nodedevice.io/vendor.com.gpu.healthy; off removes them.
    held_device_policy: by resource name (* for all others): report, the default, or evict the pod whose device broke, or
        whose container runs without its devices.
    eviction_delay_seconds: how long such a device has been broken before its pod is evicted; a blip is not enough.
    evictions_per_minute: how many pods at most, in the whole cluster; three may go at once.
    log_level: the least serious level that is logged.
    log_format: text is for people, json for a collector of logs.
    """

    kubeconfig: str | None = None
    http_address: str = ":8080"
    metrics_authentication: Authentication = "none"
    tls_certificate: str = ""
    tls_key: str = ""
    leases_namespace: str = names.AGENTS_NAMESPACE
    agent_poll_seconds: Annotated[float, Meta(ge=0.5, le=20)] = 10.0
    agent_grace_seconds: Annotated[float, Meta(ge=0)] = 300.0
    leader_elect: bool = True
    namespace: str | None = None
    instance: str = ""
    leader_lease_seconds: Annotated[int, Meta(ge=SHORTEST_LEASE_SECONDS, le=LONGEST_LEASE_SECONDS)] = 4
    watchdog_seconds: Annotated[float, Meta(ge=0)] = 120.0
    required_plugins: bool = True
    required_plugin_names: tuple[str, ...] = ("*",)
    mark_waiting_pods: bool = True
    observe_dra: bool = True
    node_taint: bool = False
    node_labels: bool = False
    held_device_policy: dict[str, Policy] = {}
    eviction_delay_seconds: Annotated[float, Meta(ge=0)] = 30.0
    evictions_per_minute: Annotated[float, Meta(gt=0)] = 6.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    @property
    def http_endpoint(self) -> tuple[str, int]:
        """Host and port of http_address. Raises OperatorSettingsError if it is not host:port."""
        try:
            return parse_address(self.http_address)
        except ValueError as exc:
            raise OperatorSettingsError(
                "httpAddress", f"{self.http_address!r} is not host:port, such as :8080 or 127.0.0.1:8080"
            ) from exc


def load(file: Path | None, given: Mapping[str, Any]) -> OperatorSettings:
    """Settings from the file, with `given` (flags and environment by field name; None: not given) on top.

    Raises OperatorSettingsError where the file cannot be read, has an unknown key or a value of the wrong kind.
    """
    try:
        settings = settings_loader.load(OperatorSettings, file, given)
    except settings_loader.SettingProblem as exc:
        raise OperatorSettingsError(exc.source, exc.problem) from exc
    _check(settings)
    return settings


def _check(settings: OperatorSettings) -> None:
    """Rejects values that would fail, or match nothing, when they are used. Raises OperatorSettingsError."""
    _ = settings.http_endpoint
    for key, namespace in (("leasesNamespace", settings.leases_namespace), ("namespace", settings.namespace)):
        if namespace is not None and not NAMESPACE.fullmatch(namespace):
            raise OperatorSettingsError(
                key, f"{namespace!r} is not a namespace: 1 to 63 of a-z, 0-9 and -, such as nodedevice-system"
            )
    check_instance(settings.instance)
    if not settings.required_plugin_names:
        raise OperatorSettingsError("requiredPluginNames", "needs at least one pattern; * allows every resource name")
    for pattern in settings.required_plugin_names:
        if not NAME_PATTERN.fullmatch(pattern):
            problem = f"{pattern!r} is not a resource name, with * for any characters, such as vendor.com/*"
            raise OperatorSettingsError("requiredPluginNames", problem)
    for resource in settings.held_device_policy.keys() - {ANY_RESOURCE}:
        problem = resource_name_problem(resource)
        if problem:
            raise OperatorSettingsError("heldDevicePolicy", f"{resource!r}: {problem}; * is every other resource")


def check_instance(instance: str) -> None:
    """Raises OperatorSettingsError for an invalid label value."""
    if not _LABEL_VALUE.fullmatch(instance):
        raise OperatorSettingsError("instance", f"{instance!r} is not a label value, such as nodedevice")
