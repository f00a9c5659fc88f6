"""Reads kubeconfig files and checks their form; the client libraries take it for granted. Connects to nothing.

No error quotes the file: what is wrong may be a secret.
"""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from nodedevice_common.decoding import Undecodable, convert
from nodedevice_common.yaml_decoding import decode_yaml


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
    try:
        form = convert(raw, Kubeconfig)
    except Undecodable as exc:
        raise KubeconfigProblem(f"it is no kubeconfig: {exc}") from exc
    return dict(raw), form


def _problem(cause: BaseException | None) -> str:
    if not isinstance(cause, yaml.MarkedYAMLError):
        return "it is not YAML"
    line = f" in line {cause.problem_mark.line + 1}" if cause.problem_mark else ""
    return f"it is not YAML: {cause.problem}{line}"
