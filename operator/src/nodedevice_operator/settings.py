"""Settings of the operator: flag, then environment variable, then configuration file, then default.

The file is YAML with the same names in camelCase. A key that is not known is an error: a typo must not be a default.
"""

import difflib
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from nodedevice_api import names

from nodedevice_operator.core.election import LONGEST_LEASE_SECONDS, SHORTEST_LEASE_SECONDS
from nodedevice_operator.core.evictions import Policy
from nodedevice_operator.errors import SettingsError

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]+)`")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set.

    kubeconfig: file with the API server and credentials; None: the pod's service account, or ~/.kube/config outside of one.
    http_address: where /healthz, /readyz and /metrics are served; port 0 lets the system choose one.
    leases_namespace: where the agents' Leases are; the agents must be told the same.
    agent_look_seconds: how often the agents' Leases are listed. They last 60 s and are renewed every 20: oftener only tells a dead
        agent sooner.
    agent_grace_seconds: how long after its Lease ran out a silent agent's free devices are still offered; as long as a kubelet
        keeps the devices of a plugin that has gone.
    leader_elect: only the operator that holds the Lease nodedevice-operator writes; False for one that is alone for sure.
    namespace: where that Lease is; None: the namespace of the pod, or of the kubeconfig's context, or nodedevice-system.
    leader_lease_seconds: how long that Lease lasts. Another operator takes over so long after a crash, and an eighth more; its
        holder renews it four times in that time, and stops to write after three quarters of it without.
    watchdog_seconds: how often it is checked that the watch brings what the API server has; 0: never. A check reads the
        metadata of every object: for 10,000 some 0.7 s of the API server's CPU and 0.1 s of ours, 0.7 % of a core in two minutes.
    required_plugins: keep the policy that makes pods wait for their node's agent, for nodes of the runtime nri.
    node_taint: taint Nodes with broken devices (nodedevice.io/unhealthy-devices, NoSchedule); off takes away what is there.
    node_labels: sum up each resource in labels of its Node, such as nodedevice.io/vendor.com.gpu.healthy; off takes them away.
    held_device_policy: by resource name (* for all others): report, the default, or evict the pod whose device broke, or
        whose container runs without its devices.
    eviction_delay_seconds: how long such a device has been broken before its pod is evicted; a blip is no reason.
    evictions_per_minute: how many pods at most, in the whole cluster; three may go at once.
    """

    kubeconfig: str | None = None
    http_address: str = "0.0.0.0:8080"
    leases_namespace: str = names.AGENTS_NAMESPACE
    agent_look_seconds: Annotated[float, Meta(ge=0.5, le=20)] = 10.0
    agent_grace_seconds: Annotated[float, Meta(ge=0)] = 300.0
    leader_elect: bool = True
    namespace: str | None = None
    leader_lease_seconds: Annotated[int, Meta(ge=SHORTEST_LEASE_SECONDS, le=LONGEST_LEASE_SECONDS)] = 4
    watchdog_seconds: Annotated[float, Meta(ge=0)] = 120.0
    required_plugins: bool = True
    node_taint: bool = False
    node_labels: bool = False
    held_device_policy: dict[str, Policy] = {}
    eviction_delay_seconds: Annotated[float, Meta(ge=0)] = 30.0
    evictions_per_minute: Annotated[float, Meta(gt=0)] = 6.0
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"

    @property
    def http_endpoint(self) -> tuple[str, int]:
        """Host and port of http_address. Raises SettingsError where it is not host:port."""
        host, colon, port = self.http_address.rpartition(":")
        if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise SettingsError("httpAddress", f"{self.http_address!r} is not host:port, such as 0.0.0.0:8080")
        return host.removeprefix("[").removesuffix("]"), int(port)


def load(file: Path | None, overrides: dict[str, Any]) -> Settings:
    """Settings from the file, with `overrides` (by field name; None: not given) on top.

    Raises SettingsError where the file cannot be read, has an unknown key or a value of the wrong kind.
    """
    given = _read(file) if file is not None else {}
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(Settings)}
    given.update({fields[name]: value for name, value in overrides.items() if value is not None})
    settings = _convert(given, str(file) if file is not None else "settings")
    _ = settings.http_endpoint  # a bad address is refused now, not when it is used
    return settings


def _read(file: Path) -> dict[str, Any]:
    try:
        content = msgspec.yaml.decode(file.read_bytes())
    except OSError as exc:
        raise SettingsError(str(file), f"cannot be read ({exc.strerror})") from exc
    except msgspec.DecodeError as exc:
        raise SettingsError(str(file), f"is no YAML ({' '.join(str(exc).split())})") from exc
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(str(file), "must be a mapping of settings, such as `logLevel: debug`")
    return {str(key): value for key, value in content.items()}


def _convert(given: dict[str, Any], source: str) -> Settings:
    try:
        return msgspec.convert(given, Settings)
    except msgspec.ValidationError as exc:
        raise SettingsError(source, _explain(str(exc))) from exc


def _explain(problem: str) -> str:
    """msgspec's sentence, with the nearest known key where it is about an unknown one."""
    unknown = _UNKNOWN_KEY.search(problem)
    if unknown is None:
        return problem
    known = sorted(field.encode_name for field in msgspec.structs.fields(Settings))
    near = difflib.get_close_matches(unknown["key"], known, n=1)
    remedy = f"did you mean {near[0]}?" if near else f"known are {', '.join(known)}"
    return f"unknown setting {unknown['key']}; {remedy}"
