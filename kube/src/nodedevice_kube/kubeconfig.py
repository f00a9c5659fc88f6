"""Reads kubeconfig files into Settings, by kubectl's rules. Connects to nothing, and quotes no file in messages.

Each field that kubectl 1.37 knows is applied or refused by name.
Source: client-go @ v0.37 tools/clientcmd (loader.go, validation.go).
"""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from nodedevice_kube.decoding import Undecodable, decode_json, decode_yaml, read_text
from nodedevice_kube.errors import BadKubeconfig, ConnectionProblem, CredentialProblem, NoSettings
from nodedevice_kube.fields import list_of, map_of, text_of
from nodedevice_kube.masking import masked, remember, remember_address, remember_login
from nodedevice_kube.settings import Impersonation, Settings

_SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REMEDY: Final = "name one by --kubeconfig or KUBECONFIG; kubectl config view shows what kubectl reads"
_CORRECT: Final = "correct the kubeconfig"
_EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
_KINDS: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_MODES: Final = ("Never", "IfAvailable", "Always")
EXEC_VERSIONS: Final = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


class _Entries:
    """Entries of several files by name, each with the folder of its relative paths. The first file's entry wins."""

    def __init__(self) -> None:
        self.clusters: dict[str, tuple[Mapping[str, Any], Path]] = {}
        self.contexts: dict[str, tuple[Mapping[str, Any], Path]] = {}
        self.users: dict[str, tuple[Mapping[str, Any], Path]] = {}
        self.current_context = ""
        self.files: list[str] = []

    def add(self, file: Path, content: Mapping[str, Any]) -> None:
        self.files.append(str(file))
        self.current_context = self.current_context or text_of(content, "current-context")
        for key, kind in _KINDS.items():
            entries = getattr(self, key)
            for entry in list_of(content, key):
                entries.setdefault(text_of(entry, "name"), (map_of(entry, kind), file.parent))


def load(kubeconfig: str = "", context: str = "", environment: Mapping[str, str] = os.environ) -> Settings:
    """Load settings of that context, else of the current one; without a kubeconfig, of this pod.

    kubeconfig: one file; "" for the files of $KUBECONFIG, else ~/.kube/config. Raises ConnectionProblem.
    """
    entries = _read(kubeconfig, environment)
    if entries.files or kubeconfig:
        return _settings(entries, context)
    if not environment.get("KUBERNETES_SERVICE_HOST"):
        raise NoSettings("there is no kubeconfig", _REMEDY)
    return in_pod(environment)


def in_pod(environment: Mapping[str, str] = os.environ) -> Settings:
    """Load settings of the pod's service account. Raises CredentialProblem. Source: client-go @ v0.37 rest.InClusterConfig."""
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise CredentialProblem("KUBERNETES_SERVICE_HOST is not in the environment", "run this in a pod")
    token, namespace = _SERVICE_ACCOUNT / "token", _SERVICE_ACCOUNT / "namespace"
    if not token.is_file():
        raise CredentialProblem(f"this pod has no service account: {token} does not exist", "let its token be mounted")
    try:
        return Settings(
            server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
            origin="the pod's service account",
            namespace=read_text(namespace).strip() if namespace.is_file() else "",
            ca_file=str(_SERVICE_ACCOUNT / "ca.crt"),
            token_file=str(token),
            account=_account(read_text(token)),
        )
    except Undecodable as exc:
        raise CredentialProblem(f"the pod's service account cannot be read: {exc}", "let its token be mounted") from exc


def _account(token: str) -> str:
    """Return the name of the token's service account, or "". Only messages use it."""
    try:
        # tokens lack the padding; excess padding is ignored
        claims = decode_json(base64.urlsafe_b64decode(f"{token.split('.')[1]}=="))
    except (IndexError, ValueError, Undecodable):
        return ""
    return text_of(claims, "sub").rpartition(":")[2]


def _read(kubeconfig: str, environment: Mapping[str, str]) -> _Entries:
    """Merge the existing files. Raises BadKubeconfig for an invalid one, and for a missing one that the flag names."""
    listed = (
        [kubeconfig] if kubeconfig else [name for name in environment.get("KUBECONFIG", "").split(os.pathsep) if name]
    )
    entries = _Entries()
    for file in _files(listed or ["~/.kube/config"]):
        try:
            if not kubeconfig and not os.path.lexists(file):
                continue
            content = decode_yaml(read_text(file))
        except (Undecodable, ValueError) as exc:
            raise BadKubeconfig(f"kubeconfig {file}: {exc}", _REMEDY) from exc
        remember_secrets(content)
        if not isinstance(content, dict):
            # kubectl ignores an empty file of several, and refuses one that a flag names
            if content is None and not kubeconfig:
                continue
            problem = "it is empty" if content is None else "it is not a kubeconfig"
            raise BadKubeconfig(f"kubeconfig {file}: {problem}", _REMEDY)
        _check_form(file, content)
        entries.add(file, content)
    return entries


def remember_secrets(content: Any) -> None:
    """Mask the secrets of a kubeconfig, valid or not, in all later messages."""
    for entry in list_of(content, "users"):
        user = map_of(entry, "user")
        remember(text_of(user, "token"), text_of(user, "client-key-data"))
        remember_login(text_of(user, "username"), text_of(user, "password"))
    for entry in list_of(content, "clusters"):
        for key in ("server", "proxy-url"):
            remember_address(text_of(map_of(entry, "cluster"), key))


def _files(names: Sequence[str]) -> list[Path]:
    try:
        # The current folder may not exist.
        return list(dict.fromkeys(Path(name).expanduser().absolute() for name in names))
    except (OSError, RuntimeError) as exc:
        raise NoSettings(f"no kubeconfig can be found: {exc}", _REMEDY) from exc


def _check_form(file: Path, content: Mapping[str, Any]) -> None:
    """Raises BadKubeconfig for another kind of file, for a value of another type, and for a name that occurs twice."""
    if content.get("kind") not in (None, "", "Config") or content.get("apiVersion") not in (None, "", "v1"):
        raise BadKubeconfig(
            f"kubeconfig {file}: it has another kind than Config, or another apiVersion than v1", _REMEDY
        )
    for key, kind in _KINDS.items():
        entries = content.get(key)
        if entries is not None and not isinstance(entries, list):
            raise BadKubeconfig(f"kubeconfig {file}: {key} is not a list", _CORRECT)
        names = set()
        for at, entry in enumerate(entries or ()):
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise BadKubeconfig(f"kubeconfig {file}: {key}[{at}] has no name", _CORRECT)
            if entry["name"] in names:
                problem = f"kubeconfig {file}: {key} has two entries of the name {entry['name']}"
                raise BadKubeconfig(problem, "remove or rename one of the two")
            names.add(entry["name"])
            _check_entry(file, f"{key}[{at}].{kind}", entry.get(kind))


_TYPES: Final[Mapping[str, type]] = {
    **dict.fromkeys(("insecure-skip-tls-verify", "disable-compression"), bool),
    **dict.fromkeys(("extensions", "as-groups"), list),
    **dict.fromkeys(("exec", "auth-provider", "as-user-extra"), dict),
}


def _check_entry(file: Path, path: str, entry: Any) -> None:
    if entry is not None and not isinstance(entry, dict):
        raise BadKubeconfig(f"kubeconfig {file}: {path} is not a mapping", _CORRECT)
    for key, value in (entry or {}).items():
        expected = _TYPES.get(key, str)
        if value is not None and not isinstance(value, expected) and (key in _TYPES or key in _TEXTS):
            problem = f"kubeconfig {file}: {path}.{key} has to be a {_TYPE_NAMES[expected]}"
            raise BadKubeconfig(problem, f"{_CORRECT}; quotes make a text of a number")


_TYPE_NAMES: Final[Mapping[type, str]] = {bool: "boolean (true or false)", list: "list", dict: "mapping", str: "text"}
_TEXTS: Final = frozenset(
    (
        *("server", "tls-server-name", "certificate-authority", "certificate-authority-data", "proxy-url"),
        *("cluster", "user", "namespace", "token", "tokenFile", "username", "password", "as", "as-uid"),
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
    )
)


def _settings(entries: _Entries, wanted: str) -> Settings:
    name = wanted or entries.current_context
    source = ", ".join(entries.files)
    names = ", ".join(sorted(entries.contexts)) or "none"
    if not name:
        problem = f"kubeconfig {source} has no current context"
        raise BadKubeconfig(problem, f"name one by --context; it has: {names}", "NoContext")
    if name not in entries.contexts:
        raise BadKubeconfig(f"kubeconfig {source} has no context {name}", f"it has: {names}", "NoContext")
    context, _ = entries.contexts[name]
    cluster, cluster_folder = _entry(entries.clusters, text_of(context, "cluster"), "cluster", name)
    user_name = text_of(context, "user")
    user, user_folder = _entry(entries.users, user_name, "user", name) if user_name else ({}, cluster_folder)
    extensions = list_of(cluster, "extensions")
    settings = Settings(
        server=_server(text_of(cluster, "server"), name),
        origin=f"context {name} of kubeconfig {source}",
        context=name,
        user=user_name,
        namespace=text_of(context, "namespace"),
        is_insecure=cluster.get("insecure-skip-tls-verify") is True,
        tls_server_name=text_of(cluster, "tls-server-name"),
        proxy_url=text_of(cluster, "proxy-url"),
        is_uncompressed=cluster.get("disable-compression") is True,
        **_file_or_data("ca", cluster, "certificate-authority", cluster_folder, f"cluster of context {name}"),
        **_file_or_data("cert", user, "client-certificate", user_folder, f"user {user_name}"),
        **_file_or_data("key", user, "client-key", user_folder, f"user {user_name}"),
        token=text_of(user, "token"),
        token_file=_path(user, "tokenFile", user_folder),
        username=text_of(user, "username"),
        password=text_of(user, "password"),
        exec_plugin=map_of(user, "exec"),
        exec_folder=str(user_folder),
        exec_config=next(
            (each.get("extension") for each in extensions if text_of(each, "name") == _EXEC_EXTENSION), None
        ),
        impersonation=_impersonation(user, user_name),
    )
    _check(settings, user)
    return settings


def _server(url: str, context: str) -> str:
    """Raises BadKubeconfig unless it is the address of an API server."""
    if not url:
        raise BadKubeconfig(f"the cluster of context {context} has no server", "kubectl config set-cluster sets it")
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    shown = masked(url)
    if not is_address or not url.isprintable() or " " in url or not _is_host_name(parts.hostname or ""):
        raise BadKubeconfig(f"the server {shown!a} is not a valid address", "it has to begin with https:// or http://")
    if parts.username or parts.query or parts.fragment:
        problem = f"the server {shown} has a user, a query or a fragment, which nodedevice does not support"
        raise BadKubeconfig(problem, "set a user's credentials under users of the kubeconfig")
    return parts.geturl().rstrip("/")


def _is_host_name(name: str) -> bool:
    """Whether TLS can send it to the server."""
    try:
        name.encode("idna")
    except UnicodeError:
        return False
    return True


def _entry(
    entries: Mapping[str, tuple[Mapping[str, Any], Path]], name: str, kind: str, context: str
) -> tuple[Mapping[str, Any], Path]:
    if name not in entries:
        raise BadKubeconfig(f"context {context} names {kind} {name}, which the kubeconfig does not have", _REMEDY)
    return entries[name]


def _file_or_data(prefix: str, entry: Mapping[str, Any], key: str, folder: Path, owner: str) -> dict[str, str]:
    """Raises BadKubeconfig for both at once, as kubectl does, and for invalid base64."""
    file, data = _path(entry, key, folder), text_of(entry, f"{key}-data")
    if file and data:
        raise BadKubeconfig(f"{owner} has both {key} and {key}-data", "remove one of the two")
    try:
        decoded = base64.b64decode("".join(data.split()), validate=True).decode(errors="replace")
    except ValueError as exc:
        raise BadKubeconfig(f"{key}-data of {owner} is not base64", _CORRECT) from exc
    return {f"{prefix}_file": file, f"{prefix}_data": decoded}


def _impersonation(user: Mapping[str, Any], name: str) -> Impersonation:
    """Raises BadKubeconfig for groups, a UID or extra values without a user, as kubectl does, and for values that are not texts."""
    extra = user.get("as-user-extra") or {}
    groups = user.get("as-groups") or []
    is_valid = all(isinstance(values, list) for values in extra.values())
    if not is_valid or not all(
        isinstance(value, str) for value in (*groups, *(v for vs in extra.values() for v in vs))
    ):
        raise BadKubeconfig(f"as-groups or as-user-extra of user {name} is not a list of texts", _CORRECT)
    impersonation = Impersonation(
        text_of(user, "as"), text_of(user, "as-uid"), tuple(groups), tuple((key, tuple(extra[key])) for key in extra)
    )
    if impersonation != Impersonation() and not impersonation.user:
        raise BadKubeconfig(f"user {name} has as-groups, as-uid or as-user-extra without as", "name a user in as")
    return impersonation


def _check(settings: Settings, user: Mapping[str, Any]) -> None:
    """Raises BadKubeconfig for combinations that kubectl refuses."""
    name, plugin = settings.user, settings.exec_plugin
    has_empty_plugin = not plugin and user.get("exec") is not None
    problem, remedy = "", _CORRECT
    if user.get("auth-provider"):
        problem, remedy = f"user {name} has an auth-provider, which kubectl removed in 1.26", "use an exec plugin"
    elif (settings.token or settings.token_file) and settings.username:
        problem, remedy = f"user {name} has both a token and a username", "remove one of the two"
    elif not _is_host_name(settings.tls_server_name):
        problem = f"tls-server-name of the cluster of context {settings.context} is not a host name"
    elif settings.is_insecure and (settings.ca_file or settings.ca_data):
        problem = f"cluster of context {settings.context} has insecure-skip-tls-verify and a certificate authority"
        remedy = "remove one of the two"
    elif bool(settings.cert_file or settings.cert_data) != bool(settings.key_file or settings.key_data):
        problem = f"user {name} has only one of client-certificate and client-key"
    elif plugin and (wrong := _wrong_in(plugin)):
        problem = f"the exec plugin of user {name} {wrong}"
    elif plugin and text_of(plugin, "apiVersion") not in EXEC_VERSIONS:
        version = text_of(plugin, "apiVersion") or "(none)"
        problem, remedy = f"the exec plugin of user {name} has apiVersion {version}", f"it has to be {EXEC_VERSIONS[0]}"
    elif has_empty_plugin or (plugin and not text_of(plugin, "command")):
        problem = f"the exec plugin of user {name} has no command"
    if problem:
        raise BadKubeconfig(problem, remedy)


def _wrong_in(plugin: Mapping[str, Any]) -> str:
    """Return what kubectl refuses in an exec plugin; "" for nothing."""
    variables, arguments = plugin.get("env") or [], plugin.get("args") or []
    if not isinstance(arguments, list) or not all(isinstance(each, str | None) for each in arguments):
        return "has args that are not a list of texts"
    if not isinstance(variables, list) or not all(
        text_of(each, "name") and isinstance(each.get("value"), str | None) for each in variables
    ):
        return "has an env that is not a list of a name and a value, both texts"
    mode = plugin.get("interactiveMode")
    if mode not in _MODES and not (mode in (None, "") and plugin.get("apiVersion") != EXEC_VERSIONS[0]):
        return f"has interactiveMode {mode or '(none)'}, which has to be one of {', '.join(_MODES)}"
    if not isinstance(plugin.get("provideClusterInfo"), bool | None):
        return "has a provideClusterInfo that is neither true nor false"
    return ""


def _path(entry: Mapping[str, Any], key: str, folder: Path) -> str:
    value = text_of(entry, key)
    return str(folder / value) if value else ""


__all__ = ["EXEC_VERSIONS", "ConnectionProblem", "in_pod", "load", "remember_secrets"]
