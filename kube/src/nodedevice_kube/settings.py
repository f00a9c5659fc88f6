"""How to reach one API server, and as whom: the values of a kubeconfig's context, or of a pod. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Impersonation(NamedTuple):
    """As whom to act. Source: the headers Impersonate-User, -Uid, -Group and -Extra-KEY of the Kubernetes API."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Settings(NamedTuple):
    """Its repr has no secrets. Data is PEM; paths are absolute; "" where a kubeconfig says nothing.

    server: URL without a slash at the end. origin: where the settings come from, for messages. context: "" in a pod.
    namespace: "" where neither kubeconfig nor pod names one. exec_plugin: an entry of a kubeconfig; exec_folder: that file's.
    exec_config: the cluster's extension `client.authentication.k8s.io/exec`. account: name of the pod's service account.
    """

    server: str
    origin: str
    context: str = ""
    user: str = ""
    namespace: str = ""
    ca_file: str = ""
    ca_data: str = ""
    is_insecure: bool = False
    tls_server_name: str = ""
    proxy_url: str = ""
    is_uncompressed: bool = False
    cert_file: str = ""
    cert_data: str = ""
    key_file: str = ""
    key_data: str = ""
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    exec_plugin: Mapping[str, Any] = MappingProxyType({})
    exec_folder: str = ""
    exec_config: Any = None
    impersonation: Impersonation = Impersonation()
    account: str = ""

    def __repr__(self) -> str:
        return f"Settings({self.server!r}, {self.origin!r})"

    @property
    def name(self) -> str:
        """The origin in short, for a person who knows the files."""
        return f"context {self.context}" if self.context else self.origin

    @property
    def scheme(self) -> str:
        return urlsplit(self.server).scheme

    @property
    def host(self) -> str:
        """Without brackets."""
        return urlsplit(self.server).hostname or ""

    @property
    def port(self) -> int:
        return urlsplit(self.server).port or (443 if self.scheme == "https" else 80)

    @property
    def has_exec_plugin(self) -> bool:
        """Whether the log-in program runs: only without another credential.

        Source: client-go @ v0.37 plugin/pkg/client/auth/exec, UpdateTransportConfig.
        """
        others = (self.token, self.token_file, self.username, self.cert_file, self.cert_data)
        return bool(self.exec_plugin) and not any(others)

    def acting_as(self, impersonation: Impersonation) -> "Settings":
        """The same with another impersonation."""
        return self._replace(impersonation=impersonation)
