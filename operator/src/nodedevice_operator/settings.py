"""Settings of the operator: flag, then environment variable, then file (YAML or JSON), then default. Unknown keys are errors."""

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
from nodedevice_operator.leases.agent_liveness import GRACE_SECONDS
from nodedevice_operator.leases.leader_election import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from nodedevice_operator.remediation.eviction_policy import ANY_RESOURCE, Policy

# What the API server accepts as the name of a namespace: anything else could change the path of a request.
NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# What a label may have as its value.
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# A resource name, or a part of one with * for the rest.
NAME_PATTERN: Final = re.compile(r"[-A-Za-z0-9_./*]{1,308}")


class ProgramSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What can be set of both programs.

    kubeconfig: kubeconfig file; unset: the files of $KUBECONFIG, else ~/.kube/config, else the pod's ServiceAccount.
    http_address: HOST:PORT of /healthz, /readyz and /metrics; without HOST all addresses; port 0: any free one.
    metrics_authentication: who may read /metrics. token: bearers of a token whose account may get that path. Probes stay open.
    leader_elect: only the holder of the program's Lease works; off only if no other replica can run.
    namespace: namespace of that Lease; unset: the pod's, else the one of the kubeconfig's context, else nodedevice-system.
    instance: name of the Helm release, for the label app.kubernetes.io/instance of created objects; empty: no label.
    watchdog_seconds: how often watches are compared with what the API server has, by the metadata of every object; 0: never.
    log_level: least serious level that is logged.
    log_format: text for people, json for log collectors.
    """

    kubeconfig: str | None = None
    http_address: str = ":8080"
    metrics_authentication: Authentication = "none"
    leader_elect: bool = True
    namespace: str | None = None
    instance: str = ""
    watchdog_seconds: Annotated[float, Meta(ge=0)] = 120.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    @property
    def http_endpoint(self) -> tuple[str, int]:
        """Host and port of http_address. Raises OperatorSettingsError if it is not host:port."""
        return parsed("httpAddress", self.http_address)


class OperatorSettings(ProgramSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Everything else that can be set.

    tls_certificate: PEM file with the certificate chain of http_address, read again when it changes; empty: plain HTTP.
    tls_key: PEM file with its key.
    leases_namespace: namespace of the agents' Leases; agents and operator need the same value.
    agent_poll_seconds: how often the agents' Leases are listed; these last 60 s and are renewed every 20 s.
    agent_grace_seconds: how long free devices of a silent agent stay offered after its Lease expired; as long as the kubelet
        keeps those of a plugin.
    leader_lease_seconds: duration of that Lease; after a crash another operator takes over when it has expired. The holder
        stops writing after three quarters of it without a renewal. While the API server is slow, the Lease lasts five times its
        slowest response, at most 20 s.
    required_plugins: keep the policy that makes pods wait for their node's agent, for nodes with delivery nri.
    required_plugin_names: resource names that this policy may have, * for any characters; such nodes do not advertise other
        names.
    mark_waiting_pods: before a resource is first advertised, mark the pods that already wait for it; needs rights to list and
        patch pods. Otherwise such a pod could start without its device while the agent is away.
    observe_dra: count the ResourceSlices that do not belong to one node, by driver; agents show the others.
    node_taint: taint Nodes with unhealthy devices (nodedevice.io/unhealthy-devices, NoSchedule); off removes the taint.
    node_labels: summarise resources in Node labels, such as nodedevice.io/vendor.com.gpu.healthy; off removes them.
    held_device_policy: by resource name, * for all others: report, or evict pods whose device is unhealthy or whose container
        lacks its devices; report if not set.
    eviction_delay_seconds: how long such a device must be unhealthy before its pod is evicted.
    evictions_per_minute: limit of evictions in the whole cluster; three may come at once.
    """

    tls_certificate: str = ""
    tls_key: str = ""
    leases_namespace: str = names.AGENTS_NAMESPACE
    agent_poll_seconds: Annotated[float, Meta(ge=0.5, le=20)] = 10.0
    agent_grace_seconds: Annotated[float, Meta(ge=0)] = GRACE_SECONDS
    leader_lease_seconds: Annotated[int, Meta(ge=SHORTEST_LEASE_SECONDS, le=LONGEST_LEASE_SECONDS)] = 4
    required_plugins: bool = True
    required_plugin_names: tuple[str, ...] = ("*",)
    mark_waiting_pods: bool = True
    observe_dra: bool = True
    node_taint: bool = False
    node_labels: bool = False
    held_device_policy: dict[str, Policy] = {}
    eviction_delay_seconds: Annotated[float, Meta(ge=0)] = 30.0
    evictions_per_minute: Annotated[float, Meta(gt=0)] = 6.0


def load(file: Path | None, given: Mapping[str, Any]) -> OperatorSettings:
    """Settings from the file, with `given` on top (flags and environment; None: not given). Raises OperatorSettingsError."""
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
        check_namespace(key, namespace)
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


def parsed(key: str, address: str) -> tuple[str, int]:
    """Host and port. Raises OperatorSettingsError if it is not host:port."""
    try:
        return parse_address(address)
    except ValueError as exc:
        raise OperatorSettingsError(key, f"{address!r} is not host:port, such as :8080 or 127.0.0.1:8080") from exc


def check_namespace(key: str, namespace: str | None) -> None:
    """Raises OperatorSettingsError for an invalid name of a namespace."""
    if namespace is not None and not NAMESPACE.fullmatch(namespace):
        problem = f"{namespace!r} is not a namespace: 1 to 63 of a-z, 0-9 and -, such as nodedevice-system"
        raise OperatorSettingsError(key, problem)


def check_instance(instance: str) -> None:
    """Raises OperatorSettingsError for an invalid label value."""
    if not _LABEL_VALUE.fullmatch(instance):
        raise OperatorSettingsError("instance", f"{instance!r} is not a label value, such as nodedevice")
