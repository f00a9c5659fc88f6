"""Kubeconfigs become a Login: who to speak to, and as whom. Connects to nothing.

Several files are merged as kubectl does it: of each name the first file's entry counts, and the first current context. No error
quotes a file, as what is wrong may be a secret. Source: client-go, tools/clientcmd.
"""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kubectl_nodedevice.decoding import Undecodable, decode_json, decode_yaml, read_text
from kubectl_nodedevice.errors import LoginProblem
from kubectl_nodedevice.fields import is_set, list_of, map_of, text_of, value_at, words_of
from kubectl_nodedevice.masking import remember, remember_login

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
# of a cluster, for programs that log in
_EXTENSION: Final = "client.authentication.k8s.io/exec"
_REMEDY: Final = "name one by --kubeconfig or KUBECONFIG; kubectl config view shows what kubectl reads"


@dataclass(frozen=True, slots=True, repr=False)
class Login:
    """An API server, and as whom to speak to it. No repr, as it has secrets.

    Data are bytes in base64. exec_plugin: the entry of a kubeconfig, with its folder; exec_config: what its cluster has for it.
    context: "" in a pod. Paths are absolute.
    as_…: as whom else to ask. account: name of the pod's service account; "" where a kubeconfig counts.
    """

    server: str
    source: str
    context: str = ""
    user: str = ""
    namespace: str = "default"
    ca_file: str = ""
    ca_data: str = ""
    is_insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    cert_file: str = ""
    cert_data: str = ""
    key_file: str = ""
    key_data: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec_plugin: Mapping[str, Any] = field(default_factory=dict)
    exec_folder: str = ""
    as_user: str = ""
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    exec_config: Any = None
    account: str = ""


@dataclass
class _Merged:
    """Entries by name, each with the folder that its paths start from."""

    clusters: dict[str, tuple[Mapping[str, Any], Path]] = field(default_factory=dict)
    contexts: dict[str, tuple[Mapping[str, Any], Path]] = field(default_factory=dict)
    users: dict[str, tuple[Mapping[str, Any], Path]] = field(default_factory=dict)
    current: str = ""
    files: list[str] = field(default_factory=list)

    def add(self, file: Path, content: Any) -> None:
        self.files.append(str(file))
        self.current = self.current or text_of(content, "current-context")
        for key, kind, into in (
            ("clusters", "cluster", self.clusters),
            ("contexts", "context", self.contexts),
            ("users", "user", self.users),
        ):
            for entry in list_of(content, key):
                into.setdefault(text_of(entry, "name"), (map_of(entry, kind), file.parent))


def load(kubeconfig: str, context: str, environment: Mapping[str, str] = os.environ) -> Login:
    """The login of that context, else of the current one; of the pod that this runs in, where there is no kubeconfig.

    kubeconfig, context: as the flags give them; "" for none. Raises LoginProblem.
    """
    merged = _merged(kubeconfig, environment)
    if not merged.files and not kubeconfig:
        if not environment.get("KUBERNETES_SERVICE_HOST"):
            raise LoginProblem("there is no kubeconfig", _REMEDY, code="NoKubeconfig")
        return in_cluster(environment)
    return _login(merged, context)


def in_cluster(environment: Mapping[str, str]) -> Login:
    """That of the pod's account. Raises LoginProblem."""
    host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
    token = _SERVICE_ACCOUNT / "token"
    if not token.is_file():
        raise LoginProblem(f"this pod has no account: {token} does not exist", "let its token be mounted")
    namespace = _SERVICE_ACCOUNT / "namespace"
    try:
        return _of_account(host, port, token, namespace)
    except Undecodable as exc:
        raise LoginProblem(f"the pod's account cannot be read: {exc}", "let its token be mounted") from exc


def _of_account(host: str, port: str, token: Path, namespace: Path) -> Login:
    return Login(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        source="the pod's account",
        namespace=(read_text(namespace).strip() if namespace.is_file() else "") or "default",
        ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
        token_file=str(token),
        account=_account(read_text(token)),
    )


def _account(token: str) -> str:
    """The service account that a token is of; "" where it does not say. Nothing is decided by it but which words are shown."""
    try:
        # tokens leave out the padding; more of it than is needed is ignored
        claims = decode_json(base64.urlsafe_b64decode(f"{token.split('.')[1]}=="))
    except (IndexError, ValueError, Undecodable):
        return ""
    return text_of(claims, "sub").rpartition(":")[2]


def _merged(kubeconfig: str, environment: Mapping[str, str]) -> _Merged:
    """Of the files that there are. Raises LoginProblem for one that is no kubeconfig, and for a missing one that the flag names."""
    listed = (
        [kubeconfig] if kubeconfig else [each for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    )
    try:
        # against the folder that this was started in, which may be gone
        files = [Path(each).expanduser().absolute() for each in listed or ["~/.kube/config"]]
    except (OSError, RuntimeError) as exc:
        raise LoginProblem(f"no kubeconfig can be found from here: {exc}", _REMEDY, code="NoKubeconfig") from exc
    merged = _Merged()
    for file in files:
        if not kubeconfig and not file.exists():
            continue
        try:
            content = decode_yaml(read_text(file))
        except Undecodable as exc:
            raise LoginProblem(f"kubeconfig {file}: {exc}", _REMEDY, code="BadKubeconfig") from exc
        if not isinstance(content, dict):
            raise LoginProblem(
                f"kubeconfig {file}: it is {'no kubeconfig' if content else 'empty'}", _REMEDY, code="BadKubeconfig"
            )
        merged.add(file, content)
    return merged


def _login(merged: _Merged, wanted: str) -> Login:
    name = wanted or merged.current
    source = ", ".join(merged.files)
    names = ", ".join(sorted(merged.contexts)) or "none"
    if not name:
        raise LoginProblem(
            f"kubeconfig {source} has no current context", f"name one by --context; it has: {names}", code="NoContext"
        )
    if name not in merged.contexts:
        raise LoginProblem(f"kubeconfig {source} has no context {name}", f"it has: {names}", code="NoContext")
    context, _ = merged.contexts[name]
    cluster, cluster_folder = _entry(merged.clusters, text_of(context, "cluster"), "cluster", name)
    server = text_of(cluster, "server")
    if not server:
        raise LoginProblem(
            f"the cluster of context {name} has no server", "kubectl config set-cluster sets it", code="BadKubeconfig"
        )
    user_name = text_of(context, "user")
    user, folder = _entry(merged.users, user_name, "user", name) if user_name else ({}, cluster_folder)
    if "auth-provider" in user:
        raise LoginProblem(
            f"user {user_name} has an auth-provider, which kubectl 1.26 and newer do not know either",
            "use an exec plugin",
        )
    extra = map_of(user, "as-user-extra")
    remember(text_of(user, "token"), text_of(user, "client-key-data"))
    remember_login(text_of(user, "username"), text_of(user, "password"))
    return Login(
        server=server.rstrip("/"),
        source=f"context {name}",
        context=name,
        user=user_name,
        namespace=text_of(context, "namespace") or "default",
        ca_file=_path(cluster, "certificate-authority", cluster_folder),
        ca_data=text_of(cluster, "certificate-authority-data"),
        is_insecure=is_set(cluster, "insecure-skip-tls-verify"),
        tls_server_name=text_of(cluster, "tls-server-name"),
        proxy=text_of(cluster, "proxy-url"),
        cert_file=_path(user, "client-certificate", folder),
        cert_data=text_of(user, "client-certificate-data"),
        key_file=_path(user, "client-key", folder),
        key_data=text_of(user, "client-key-data"),
        token=text_of(user, "token"),
        token_file=_path(user, "tokenFile", folder),
        username=text_of(user, "username"),
        password=text_of(user, "password"),
        exec_plugin=map_of(user, "exec"),
        exec_folder=str(folder),
        as_user=text_of(user, "as"),
        as_uid=text_of(user, "as-uid"),
        as_groups=words_of(user, "as-groups"),
        as_extra=tuple((key, words_of(extra, key)) for key in extra),
        exec_config=_exec_config(cluster),
    )


def _exec_config(cluster: Mapping[str, Any]) -> Any:
    named = [each for each in list_of(cluster, "extensions") if text_of(each, "name") == _EXTENSION]
    return value_at(named[0], "extension") if named else None


def _entry(
    entries: Mapping[str, tuple[Mapping[str, Any], Path]], name: str, kind: str, context: str
) -> tuple[Mapping[str, Any], Path]:
    if name not in entries:
        raise LoginProblem(
            f"context {context} names {kind} {name}, which the kubeconfig does not have", _REMEDY, code="BadKubeconfig"
        )
    return entries[name]


def _path(entry: Mapping[str, Any], key: str, folder: Path) -> str:
    value = text_of(entry, key)
    return str(folder / value) if value else ""
