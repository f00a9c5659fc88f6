"""Programs that log people in, as kubeconfigs name them.

Source: client-go, plugin/pkg/client/auth/exec; ExecCredential v1 and v1beta1.
"""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kubectl_nodedevice.decoding import Undecodable, decode_json
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.fields import is_set, list_of, text_of, words_of
from kubectl_nodedevice.kubeconfig import Login

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
        done = subprocess.run(arguments, stdout=subprocess.PIPE, env=_environment(login, version), check=False)
    except OSError as exc:
        raise LoginProblem(
            f"the login program {program} does not start: {exc.strerror or exc}", "correct its file"
        ) from exc
    if done.returncode:
        raise LoginProblem(
            f"the login program {command} ended with status {done.returncode}", "log in again, as it says above"
        )
    return _credential(command, done.stdout)


def _environment(login: Login, version: str) -> dict[str, str]:
    entry = login.exec_plugin
    added = {text_of(each, "name"): text_of(each, "value") for each in list_of(entry, "env") if text_of(each, "name")}
    mode = text_of(entry, "interactiveMode") or "IfAvailable"
    is_interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    spec: dict[str, object] = {"interactive": is_interactive}
    if is_set(entry, "provideClusterInfo"):
        cluster = {
            "server": login.server,
            "certificate-authority-data": login.ca_data,
            "insecure-skip-tls-verify": login.is_insecure,
            "tls-server-name": login.tls_server_name,
        }
        spec["cluster"] = {key: value for key, value in cluster.items() if value}
    info = {"apiVersion": version, "kind": "ExecCredential", "spec": spec}
    return {**os.environ, **added, "KUBERNETES_EXEC_INFO": json.dumps(info)}


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
    if not made.token and not made.certificate:
        raise LoginProblem(
            f"the login program {command} gave neither a token nor a certificate", "run it by hand to see why"
        )
    return made
