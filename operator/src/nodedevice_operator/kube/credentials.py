"""Where the API server is and which identity to use, from a kubeconfig or the pod's service account.

The `kubernetes` package reads them. The token's file is read here: again and again, as tokens are replaced about every hour.
"""

import os
import ssl
import time
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import yaml
from kubernetes import config
from kubernetes.client.configuration import Configuration
from nodedevice_common.kubeconfig import KubeconfigProblem, read
from nodedevice_common.masking import masked, remember
from nodedevice_common.token_file import NoToken, TokenFile

from nodedevice_operator.errors import CredentialsError

# As often as client libraries of Kubernetes read it again.
_TOKEN_LIFE_SECONDS: Final = 60.0
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_POD: Final = "the pod's service account"
# What the package lets out for a file that is no kubeconfig.
_UNUSABLE: Final = (
    *(OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError),
    *(yaml.YAMLError, KubeconfigProblem),
)


class Credentials:
    """One API server and one identity, for every client in the process. `configuration` is the kubernetes package's.

    namespace: the one that the pod, or the kubeconfig's context, is in; None where neither is known. origin: where both are from.
    cluster: the API server and that, for people.
    """

    def __init__(self, configuration: Any, token_file: Path | None, namespace: str | None, origin: str) -> None:
        self.configuration = configuration
        self.server = str(configuration.host)
        self.namespace = namespace
        self.cluster = masked(f"{self.server} ({origin})")
        self._token_file = TokenFile(token_file) if token_file is not None else None
        self._token: str
        self._read_at = float("-inf")
        self._context: ssl.SSLContext | None = None

    def authorization(self) -> str | None:
        """Value of the Authorization header for a request made now; None with a client certificate.

        Raises CredentialsError when the token cannot be read.
        """
        if self._token_file is not None:
            return self._from_file(self._token_file)
        try:
            value = self.configuration.get_api_key_with_prefix("BearerToken")
        except (OSError, ValueError, RecursionError, config.ConfigException) as exc:
            raise CredentialsError(f"the token cannot be read ({exc})") from exc
        return _header(str(value)) if value else None

    def refused(self) -> None:
        """The API server did not accept the token: read it again for the next request."""
        self._read_at = float("-inf")

    def transport_options(self) -> dict[str, Any]:
        """Options of aiohttp for each request: the proxy, and the server name in TLS, that kubeconfig or environment name."""
        made = self.configuration
        host = urlsplit(self.server).hostname or ""
        options: dict[str, Any] = {}
        if made.proxy and not proxy_bypass(host):
            options["proxy"] = made.proxy
        if made.tls_server_name:
            options["server_hostname"] = made.tls_server_name
        return options

    def ssl_context(self) -> ssl.SSLContext:
        """TLS as the kubeconfig asks for it; its files are read once, for all clients of the process.

        Raises CredentialsError where a certificate or a key is none.
        """
        if self._context is None:
            self._context = self._new_context()
        return self._context

    def _new_context(self) -> ssl.SSLContext:
        made = self.configuration
        try:
            context = ssl.create_default_context(cafile=made.ssl_ca_cert)
        except OSError as exc:
            raise CredentialsError(f"the API server's certificate authority is no certificate: {exc}") from exc
        if not made.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        try:
            if made.cert_file:
                context.load_cert_chain(made.cert_file, made.key_file)
        except OSError as exc:
            raise CredentialsError(f"the client certificate and its key cannot be read: {exc}") from exc
        return context

    def _from_file(self, file: TokenFile) -> str:
        now = time.monotonic()
        if now - self._read_at >= _TOKEN_LIFE_SECONDS:
            try:
                self._token = file.read()
            except NoToken as exc:
                raise CredentialsError(str(exc)) from exc
            self._read_at = now
        return f"Bearer {self._token}"


def _header(value: str) -> str:
    """As it is sent, without the line break that an editor adds. Raises CredentialsError for what is no header."""
    found = value.strip()
    remember(found, found.partition(" ")[2])
    if not found.isprintable() or not found.isascii():
        raise CredentialsError("the token has characters that no header takes: log in again, or correct the kubeconfig")
    return found


def load(kubeconfig: str | None) -> Credentials:
    """Credentials from that kubeconfig; without one from the pod's service account, or from the user's own kubeconfig.

    Raises CredentialsError when there are none, or they cannot be read.
    """
    configuration = Configuration()
    is_in_pod = kubeconfig is None and config.incluster_config.SERVICE_HOST_ENV_NAME in os.environ
    file = kubeconfig or config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        found = _of_pod(configuration) if is_in_pod else _of_kubeconfig(configuration, file)
        # its files are read now, so that what is wrong with them is reported at once
        found.ssl_context()
        _check_address(found.server)
    except (*_UNUSABLE, config.ConfigException, CredentialsError) as exc:
        where = _POD if is_in_pod else f"kubeconfig {file}"
        problem = " ".join(str(exc).split())
        raise CredentialsError(f"{where}: cannot be used ({problem}); give one with --kubeconfig") from exc
    return found


def _check_address(server: str) -> None:
    """Raises CredentialsError, and ValueError for a port that is none."""
    parts = urlsplit(server)
    if parts.scheme not in ("https", "http") or not parts.hostname or parts.port == 0:
        raise CredentialsError("the server is no address that begins with https:// or http://")
    if parts.username or parts.password:
        raise CredentialsError("the server's address has a log-in: put that into the user")


def _of_pod(configuration: Configuration) -> Credentials:
    loaders: Any = config  # without types of its own
    loaders.load_incluster_config(client_configuration=configuration)
    token = Path(config.incluster_config.SERVICE_TOKEN_FILENAME)
    return Credentials(configuration, token, _POD_NAMESPACE.read_text(encoding="utf-8").strip(), _POD)


def _of_kubeconfig(configuration: Configuration, files: str) -> Credentials:
    """files: one, or several as in KUBECONFIG, of which those that are missing count for nothing."""
    # not pathlib's: those raise where a home or a path cannot be found out
    named = (os.path.expanduser(file) for file in files.split(os.pathsep) if file)
    paths = [Path(file) for file in named if os.path.exists(file)]
    if not paths:
        raise CredentialsError("there is no such file")
    # first of all: the package takes its form for granted
    contents = [read(path)[1] for path in paths]
    loaders: Any = config  # without types of its own
    loaders.load_kube_config(config_file=files, client_configuration=configuration)
    # of several kubeconfigs, the first one counts
    context, user = contents[0].current()
    token_file = paths[0].parent / user.token_file if user.token_file else None
    chosen = [each.current_context for each in contents if each.current_context]
    origin = f"context {''.join(chosen[:1])} of kubeconfig {files}"
    return Credentials(configuration, token_file, context.namespace, origin)
