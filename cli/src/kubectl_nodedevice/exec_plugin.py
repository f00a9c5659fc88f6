"""Programs that log people in, as kubeconfigs name them.

Source: client-go, plugin/pkg/client/auth/exec; ExecCredential v1 and v1beta1.
"""

import base64
import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubectl_nodedevice.decoding import Undecodable, decode_json
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.fields import is_set, list_of, text_of, words_of
from kubectl_nodedevice.kubeconfig import Login
from kubectl_nodedevice.masking import remember
from kubectl_nodedevice.output import Screen

# after which a question without an end of the line is shown, and for its last words once a program has ended
_IDLE_SECONDS: Final = 0.2
_LAST_SECONDS: Final = 1.0
_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What the program gave. certificate, key: PEM. No repr, as it has secrets."""

    token: str = ""
    certificate: str = ""
    key: str = ""


def run(login: Login) -> Credential:
    """Ask the program of the login for a credential; it may speak with the person. Raises LoginProblem."""
    entry = login.exec_plugin
    command, version = text_of(entry, "command"), text_of(entry, "apiVersion")
    if version not in _VERSIONS:
        raise LoginProblem(
            f"the login program of user {login.user} speaks {version or 'no version'}", f"it has to be {_VERSIONS[0]}"
        )
    program = str(Path(login.exec_folder) / command) if "/" in command else shutil.which(command)
    if not command or not program or not Path(program).is_file():
        hint = text_of(entry, "installHint").strip() or f"install {command}, or correct the user in the kubeconfig"
        raise LoginProblem(
            f"user {login.user} logs in by the program {command or '(none)'}, which is not installed", hint
        )
    arguments = [program, *words_of(entry, "args")]
    try:
        status, output = _done(arguments, _environment(login, version))
    except OSError as exc:
        raise LoginProblem(
            f"the login program {program} does not start: {exc.strerror or exc}", "correct its file"
        ) from exc
    if status:
        raise LoginProblem(f"the login program {command} ended with status {status}", "log in again, as it says above")
    return _credential(command, output)


def _done(arguments: list[str], environment: dict[str, str]) -> tuple[int, bytes]:
    """Exit status and output of a program. What it says on standard error is shown at once, as other text is. Raises OSError."""
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        words = threading.Thread(target=_pass_on, args=(process.stderr.fileno(),), daemon=True)
        words.start()
        output = process.stdout.read()
        status = process.wait()
        # another program that it has started may have its standard error for ever
        words.join(_LAST_SECONDS)
    return status, output


def _pass_on(source: int) -> None:
    """A line when it is whole; a part of one, such as a question, when nothing follows."""
    rest = b""
    with contextlib.suppress(OSError, ValueError):
        while True:
            if rest and not select.select([source], [], [], _IDLE_SECONDS)[0]:
                _show(rest, end="")
                rest = b""
            data = os.read(source, 1 << 16)
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                _show(line)
            if not data:
                _show(rest, end="")
                return


def _show(words: bytes, end: str = "\n") -> None:
    Screen().note(words.decode(errors="replace"), end)


def _environment(login: Login, version: str) -> dict[str, str]:
    entry = login.exec_plugin
    added = {text_of(each, "name"): text_of(each, "value") for each in list_of(entry, "env") if text_of(each, "name")}
    mode = text_of(entry, "interactiveMode") or "IfAvailable"
    is_interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, object] = {"interactive": is_interactive}
    if is_set(entry, "provideClusterInfo"):
        cluster = {
            "server": login.server,
            "certificate-authority-data": login.ca_data or _authority(login),
            "insecure-skip-tls-verify": login.is_insecure,
            "tls-server-name": login.tls_server_name,
            "proxy-url": login.proxy,
            "config": login.exec_config,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)}


def _authority(login: Login) -> str:
    """That of a file, in base64; "" where there is none. Raises OSError."""
    return base64.b64encode(Path(login.ca_file).read_bytes()).decode() if login.ca_file else ""


def _credential(command: str, output: bytes) -> Credential:
    try:
        found = decode_json(output)
    except Undecodable as exc:
        raise LoginProblem(
            f"what the login program {command} printed is no ExecCredential: {exc}", "run it by hand"
        ) from exc
    made = Credential(
        text_of(found, "status", "token"),
        text_of(found, "status", "clientCertificateData"),
        text_of(found, "status", "clientKeyData"),
    )
    remember(made.token, made.key)
    if not made.token and not made.certificate:
        raise LoginProblem(
            f"the login program {command} gave neither a token nor a certificate", "run it by hand to see why"
        )
    return made
