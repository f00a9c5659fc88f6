"""Runs the log-in programs (exec plugins) of kubeconfigs.

Source: client-go @ v0.37 plugin/pkg/client/auth/exec; ExecCredential v1 and v1beta1.
"""

import base64
import json
import os
import selectors
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from nodedevice_kube.decoding import Undecodable, decode_json, read_text
from nodedevice_kube.errors import CredentialProblem
from nodedevice_kube.fields import list_of, text_of, value_at
from nodedevice_kube.masking import masked, printable, remember
from nodedevice_kube.settings import Settings

# Octets of the program's output: ten times a token with hundreds of groups.
_MOST_OUTPUT: Final = 1 << 20
# Octets of a line on standard error that are shown as one.
_LONGEST_LINE: Final = 1 << 16
# A question without a line feed is shown after this pause. The last words of an ended program have the second one.
_IDLE_SECONDS: Final = 0.2
_LAST_WORDS_SECONDS: Final = 1.0
_KIND: Final = "ExecCredential"
_LOG_IN_AGAIN: Final = "run the program by hand to see why"


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """The program's credential. It has no repr, so that no log shows a secret.

    certificate, key: PEM. expires_at: seconds since 1970; None if it does not expire.
    """

    token: str = ""
    certificate: str = ""
    key: str = ""
    expires_at: float | None = None


def run(settings: Settings, timeout_seconds: float | None = None) -> Credential:
    """Run the exec plugin of the settings, which may talk with the person at the terminal. Raises CredentialProblem."""
    entry = settings.exec_plugin
    command, version = str(entry.get("command") or ""), str(entry.get("apiVersion") or "")
    arguments = [_program(settings, command), *(each for each in list_of(entry, "args") if isinstance(each, str))]
    mode = entry.get("interactiveMode") or "IfAvailable"
    has_terminal = sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not has_terminal:
        problem = f"the log-in program {printable(command)} needs a terminal, as its interactiveMode is Always"
        raise CredentialProblem(problem, "run this at a terminal, or log in by another user of the kubeconfig")
    is_interactive = mode != "Never" and has_terminal
    environment = _environment(settings, version, is_interactive=is_interactive)
    try:
        status, output = _run(arguments, environment, timeout_seconds, is_interactive=is_interactive)
    except subprocess.TimeoutExpired as exc:
        problem = f"the log-in program {printable(command)} did not end within {timeout_seconds:.0f} s"
        raise CredentialProblem(problem, _LOG_IN_AGAIN) from exc
    except (OSError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or "an argument or variable is invalid"
        problem = f"the log-in program {printable(arguments[0])} does not start: {reason}"
        raise CredentialProblem(problem, "correct the file, or the user in the kubeconfig") from exc
    if status:
        problem = f"the log-in program {printable(command)} ended with status {status}"
        raise CredentialProblem(problem, "log in again, as the program's own message says")
    return _credential(command, version, output)


def _run(
    arguments: list[str], environment: dict[str, str], timeout_seconds: float | None, *, is_interactive: bool
) -> tuple[int, bytes]:
    """Return exit status and output. Standard error is shown at once, without secrets and control characters.

    A program that it started may keep both open, so their rest does not count long after its end.
    Raises OSError, ValueError, subprocess.TimeoutExpired.
    """
    give_up_at = time.monotonic() + (timeout_seconds or threading.TIMEOUT_MAX)
    stdin = None if is_interactive else subprocess.DEVNULL
    with (
        subprocess.Popen(
            arguments, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0
        ) as process,
        selectors.DefaultSelector() as pipes,
    ):
        output, words = bytearray(), _Words()
        assert process.stdout is not None
        assert process.stderr is not None
        pipes.register(process.stdout, selectors.EVENT_READ, output.extend)
        pipes.register(process.stderr, selectors.EVENT_READ, words.add)
        try:
            while pipes.get_map() and time.monotonic() < give_up_at and len(output) <= _MOST_OUTPUT:
                if not _read_some(pipes):
                    words.show_rest()
                if process.poll() is not None:
                    give_up_at = min(give_up_at, time.monotonic() + _LAST_WORDS_SECONDS)
            words.show_rest()
            if len(output) > _MOST_OUTPUT:
                return 0, bytes(output)
            return process.wait(max(0.0, give_up_at - time.monotonic())), bytes(output)
        finally:
            process.kill()


def _read_some(pipes: selectors.BaseSelector) -> bool:
    """Read from ready pipes. Return whether any was ready within a while."""
    found = pipes.select(_IDLE_SECONDS)
    for ready, _ in found:
        data = os.read(ready.fd, 1 << 16)
        if data:
            ready.data(data)
        else:
            pipes.unregister(ready.fileobj)
    return bool(found)


class _Words:
    """Shows whole lines, and a part of a line, such as a question, if nothing follows or it is long."""

    def __init__(self) -> None:
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            _show(line)
        if len(self._rest) > _LONGEST_LINE:
            self.show_rest()

    def show_rest(self) -> None:
        if self._rest:
            _show(self._rest, end="")
            self._rest = b""


def _show(words: bytes, end: str = "\n") -> None:
    if sys.stderr is not None:
        sys.stderr.write(printable(masked(words.decode(errors="replace"))) + end)
        sys.stderr.flush()


def _program(settings: Settings, command: str) -> str:
    """Find a path in the kubeconfig's folder, or a name in PATH. Raises CredentialProblem."""
    path = str(Path(settings.exec_folder) / command) if "/" in command else shutil.which(command)
    if path and Path(path).is_file():
        return path
    hint = printable(str(settings.exec_plugin.get("installHint") or "")).strip()
    problem = f"the log-in program {printable(command)} of user {settings.user} is not installed"
    raise CredentialProblem(problem, hint or f"install {printable(command)}, or correct the user in the kubeconfig")


def _environment(settings: Settings, version: str, *, is_interactive: bool) -> dict[str, str]:
    entries = list_of(settings.exec_plugin, "env")
    added = {entry["name"]: str(entry.get("value") or "") for entry in entries if text_of(entry, "name")}
    spec: dict[str, object] = {"interactive": is_interactive}
    if settings.exec_plugin.get("provideClusterInfo") is True:
        spec["cluster"] = _cluster(settings)
    info = {"apiVersion": version, "kind": _KIND, "spec": spec}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _cluster(settings: Settings) -> Mapping[str, object]:
    """Return the cluster as kubectl describes it to the program; the certificate authority always as data."""
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
    status = value_at(content, "status")
    if not isinstance(status, dict) or content.get("kind", _KIND) != _KIND:
        raise CredentialProblem(f"the output of {name} is not an ExecCredential", _LOG_IN_AGAIN)
    if content.get("apiVersion") != version:
        problem = f"{name} printed another apiVersion than {version}, which the kubeconfig names"
        raise CredentialProblem(problem, "correct the apiVersion of the user in the kubeconfig")
    credential = Credential(
        token=text_of(status, "token"),
        certificate=text_of(status, "clientCertificateData"),
        key=text_of(status, "clientKeyData"),
        expires_at=_seconds(name, status.get("expirationTimestamp")),
    )
    remember(credential.token, credential.key)
    if bool(credential.certificate) != bool(credential.key) or not (credential.token or credential.certificate):
        problem = f"{name} printed neither a token nor a certificate with its key"
        raise CredentialProblem(problem, _LOG_IN_AGAIN)
    return credential


def _seconds(name: str, timestamp: Any) -> float | None:
    if not timestamp:
        return None
    try:
        moment = datetime.fromisoformat(timestamp if isinstance(timestamp, str) else "")
        if moment.tzinfo is None:
            raise ValueError("a time needs a zone")
        return moment.timestamp()
    except (ValueError, OverflowError) as exc:
        raise CredentialProblem(f"{name} printed an invalid expirationTimestamp", _LOG_IN_AGAIN) from exc
