"""Settings of the operator: flag, then environment variable, then configuration file, then default.

The file is YAML with the same names in camelCase. A key that is not known is an error: a typo must not be a default.
"""

import difflib
import re
from pathlib import Path
from typing import Any, Literal

import msgspec
from nodedevice_api import names

from nodedevice_operator.errors import SettingsError

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_UNKNOWN_KEY = re.compile(r"unknown field `(?P<key>[^`]+)`")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Everything that can be set.

    kubeconfig: file with the API server and credentials; None: the pod's service account, or ~/.kube/config outside of one.
    http_address: where /healthz, /readyz and /metrics are served; port 0 lets the system choose one.
    leases_namespace: where the agents' Leases are; the agents must be told the same.
    """

    kubeconfig: str | None = None
    http_address: str = "0.0.0.0:8080"
    leases_namespace: str = names.AGENTS_NAMESPACE
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
