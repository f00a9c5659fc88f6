"""Runs the log-in programs (exec plugins) of kubeconfigs.

Source: client-go @ v0.37 plugin/pkg/client/auth/exec; ExecCredential v1 and v1beta1.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from nodedevice_kube.decoding import Undecodable, decode_json, read_text
from nodedevice_kube.errors import CredentialProblem
from nodedevice_kube.redaction import printable
from nodedevice_kube.settings import Settings

# Octets of the program's output; a token with hundreds of groups has a tenth of it.
_MOST_OUTPUT: Final = 1 << 20
_LOG_IN_AGAIN: Final = "run the program by hand to see why"


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What the program printed; without a repr, as it has secrets.

    certificate, key: PEM. expires_at: seconds since 1970; None if it does not expire.
    """

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires_at: float | None = None


def run(settings: Settings, timeout_seconds: float | None = None) -> Credential:
    """Runs the exec plugin of the settings and waits for it; it may talk with the person at the terminal.

    Raises CredentialProblem.
    """
    entry = settings.exec_plugin
    command, version = str(entry.get("command") or ""), str(entry.get("apiVersion") or "")
    arguments = [_program(settings, command), *_texts(entry.get("args"))]
    mode = entry.get("interactiveMode") or "IfAvailable"
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        problem = f"the log-in program {printable(command)} needs a terminal, as its interactiveMode is Always"
        raise CredentialProblem(problem, "run this at a terminal, or log in by another user of the kubeconfig")
    is_interactive = mode != "Never" and has_terminal
    environment = _environment(settings, version, is_interactive=is_interactive)
    try:
        done = subprocess.run(
            arguments,
            stdin=None if is_interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            check=False,
            timeout=timeout_seconds,
        )
    except subprocess.TimeoutExpired as exc:
        problem = f"the log-in program {printable(command)} did not end within {timeout_seconds:.0f} s"
        raise CredentialProblem(problem, _LOG_IN_AGAIN) from exc
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "an argument or variable is invalid"
        problem = f"the log-in program {printable(arguments[0])} does not start: {reason}"
        raise CredentialProblem(problem, "correct the file, or the user in the kubeconfig") from exc
    if done.returncode:
        problem = f"the log-in program {printable(command)} ended with status {done.returncode}"
        raise CredentialProblem(problem, "log in again, as the program's own message says")
    return _credential(command, version, done.stdout)


def _program(settings: Settings, command: str) -> str:
    """A path is relative to the folder of the kubeconfig; a name is searched in PATH. Raises CredentialProblem."""
    path = str(Path(settings.exec_folder) / command) if "/" in command else shutil.which(command)
    if path and Path(path).is_file():
        return path
    hint = printable(str(settings.exec_plugin.get("installHint") or "")).strip()
    problem = f"the log-in program {printable(command)} of user {settings.user} is not installed"
    raise CredentialProblem(problem, hint or f"install {printable(command)}, or correct the user in the kubeconfig")


def _environment(settings: Settings, version: str, *, is_interactive: bool) -> dict[str, str]:
    entries = settings.exec_plugin.get("env")
    added = {
        entry["name"]: str(entry.get("value") or "")
        for entry in (entries if isinstance(entries, list) else ())
        if isinstance(entry, dict) and isinstance(entry.get("name"), str) and entry["name"]
    }
    spec: dict[str, object] = {"interactive": is_interactive}
    if settings.exec_plugin.get("provideClusterInfo") is True:
        spec["cluster"] = _cluster(settings)
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _cluster(settings: Settings) -> Mapping[str, object]:
    """What kubectl tells the program of the cluster; the certificate authority always as data."""
    import base64

    try:
        authority = settings.ca_data or (read_text(Path(settings.ca_file)) if settings.ca_file else "")
    except Undecodable as exc:
        problem = f"the certificate authority {settings.ca_file} cannot be read: {exc}"
        raise CredentialProblem(problem, "correct the kubeconfig") from exc
    cluster = {
        "server": settings.server,
        "tls-server-name": settings.tls_server_name,
        "insecure-skip-tls-verify": settings.is_insecure,
        "certificate-authority-data": base64.b64encode(authority.encode()).decode(),
        "proxy-url": settings.proxy_url,
        "disable-compression": settings.is_uncompressed,
        "config": settings.exec_config,
    }
    return {key: value for key, value in cluster.items() if value}


def _credential(command: str, version: str, output: bytes) -> Credential:
    name = f"the log-in program {printable(command)}"
    try:
        if len(output) > _MOST_OUTPUT:
            raise Undecodable(f"it has more than {_MOST_OUTPUT >> 20} MiB")
        content = decode_json(output)
    except Undecodable as exc:
        raise CredentialProblem(f"the output of {name} is not an ExecCredential: {exc}", _LOG_IN_AGAIN) from exc
    status = content.get("status") if isinstance(content, dict) else None
    if not isinstance(status, dict) or content.get("kind") != "ExecCredential":
        raise CredentialProblem(f"the output of {name} is not an ExecCredential", _LOG_IN_AGAIN)
    if content.get("apiVersion") != version:
        problem = f"{name} printed another apiVersion than {version}, which the kubeconfig names"
        raise CredentialProblem(problem, "correct the apiVersion of the user in the kubeconfig")
    credential = Credential(
        token=_text(status.get("token")),
        certificate=_text(status.get("clientCertificateData")),
        key=_text(status.get("clientKeyData")),
        expires_at=_seconds(name, status.get("expirationTimestamp")),
    )
    if bool(credential.certificate) != bool(credential.key) or not (credential.token or credential.certificate):
        problem = f"{name} printed neither a token nor a certificate with its key"
        raise CredentialProblem(problem, _LOG_IN_AGAIN)
    return credential


def _seconds(name: str, timestamp: Any) -> float | None:
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(_text(timestamp)).timestamp()
    except (ValueError, OverflowError) as exc:
        raise CredentialProblem(f"{name} printed an invalid expirationTimestamp", _LOG_IN_AGAIN) from exc


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _texts(values: Any) -> list[str]:
    return [value for value in values if isinstance(value, str)] if isinstance(values, list) else []
