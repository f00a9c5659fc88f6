"""Reads kubeconfig files and checks their form; the client libraries take it for granted. Connects to nothing.

No error quotes the file: what is wrong may be a secret.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodedevice_common.decoding import Undecodable, convert
from nodedevice_common.masking import remember, remember_address, remember_login
from nodedevice_common.yaml_decoding import decode_yaml

_HEADER = re.compile(r"[!-~]*")


class KubeconfigProblem(Exception):
    """A file that is no usable kubeconfig; the text does not name the file."""


class ClusterEntry(msgspec.Struct):
    server: str | None = None


class ContextEntry(msgspec.Struct):
    user: str | None = None
    namespace: str | None = None


class UserEntry(msgspec.Struct, rename="camel"):
    token_file: str | None = None


class NamedCluster(msgspec.Struct):
    name: str
    cluster: ClusterEntry | None


class NamedContext(msgspec.Struct):
    name: str
    context: ContextEntry | None


class NamedUser(msgspec.Struct):
    name: str
    user: UserEntry | None


class Kubeconfig(msgspec.Struct, rename="kebab"):
    """As much of the form as matters to either program. One file of several may leave out anything."""

    clusters: list[NamedCluster] | None = None
    contexts: list[NamedContext] | None = None
    users: list[NamedUser] | None = None
    current_context: str | None = None

    def current(self) -> tuple[ContextEntry, UserEntry]:
        """The current context and its user; empty entries where the file has none."""
        contexts = {each.name: each.context for each in self.contexts or ()}
        users = {each.name: each.user for each in self.users or ()}
        context = contexts.get(self.current_context or "") or ContextEntry()
        return context, users.get(context.user or "") or UserEntry()


def read(file: Path) -> tuple[dict[str, Any], Kubeconfig]:
    """The file as it is, for a client library, and its form. Raises KubeconfigProblem."""
    try:
        raw = decode_yaml(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise KubeconfigProblem(exc.strerror or str(exc)) from exc
    except Undecodable as exc:
        raise KubeconfigProblem(_problem(exc.__cause__)) from exc
    except UnicodeDecodeError as exc:
        raise KubeconfigProblem("it is not YAML") from exc
    if raw is None:
        raise KubeconfigProblem("it is empty")
    remember_secrets(raw)
    if any(not _HEADER.fullmatch(_text(user, "token")) for user in _entries(raw, "users", "user")):
        raise KubeconfigProblem("a token in it has a line break or another character that no header takes: remove it")
    try:
        form = convert(raw, Kubeconfig)
    except Undecodable as exc:
        raise KubeconfigProblem(f"it is no kubeconfig: {exc}") from exc
    return dict(raw), form


def remember_secrets(raw: Any) -> None:
    """Those of a kubeconfig, whatever form it has."""
    for user in _entries(raw, "users", "user"):
        remember(_text(user, "token"), _text(user, "client-key-data"))
        remember_login(_text(user, "username"), _text(user, "password"))
    for cluster in _entries(raw, "clusters", "cluster"):
        for key in ("server", "proxy-url"):
            remember_address(_text(cluster, key))


def _entries(raw: Any, key: str, kind: str) -> list[dict[str, Any]]:
    listed = raw.get(key) if isinstance(raw, dict) else None
    found = [each.get(kind) for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [each for each in found if isinstance(each, dict)]


def _text(entry: dict[str, Any], key: str) -> str:
    found = entry.get(key)
    return found if isinstance(found, str) else ""


def _problem(cause: BaseException | None) -> str:
    if not isinstance(cause, yaml.MarkedYAMLError):
        return "it is not YAML"
    line = f" in line {cause.problem_mark.line + 1}" if cause.problem_mark else ""
    return f"it is not YAML: {cause.problem}{line}"
