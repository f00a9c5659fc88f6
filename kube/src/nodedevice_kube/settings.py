"""The connection settings of one API server: of a kubeconfig's context, or of a pod. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Impersonation(NamedTuple):
    """Source: the headers Impersonate-User, -Uid, -Group and -Extra-KEY of the Kubernetes API."""

    user: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Settings(NamedTuple):
    """Connection settings; the repr has no secrets. Data is PEM; paths are absolute; "" stands for an absent field.

    server: URL without a final slash. origin: the source of the settings, for messages. exec_folder: folder of the file with the
    exec plugin. exec_config: the cluster's extension `client.authentication.k8s.io/exec`. account: name of the pod's service
    account.
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
        """A short origin for people."""
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
        """Whether the log-in program runs, which it does only without another credential.

        Source: client-go @ v0.37 plugin/pkg/client/auth/exec, UpdateTransportConfig.
        """
        others = (self.token, self.token_file, self.username, self.cert_file, self.cert_data)
        return bool(self.exec_plugin) and not any(others)
