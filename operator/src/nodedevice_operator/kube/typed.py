"""Typed clients of the `kubernetes` package, for commands that run once: our connection settings, and our errors.

The package's own reader of kubeconfigs ignores `as` and takes a token with the newline of its file. Its clients block.
Source: kubernetes @ 37.0 client/rest.py, urllib3 @ 2.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from nodedevice_common.threads import in_thread
from nodedevice_kube import tunnels
from nodedevice_kube.api_errors import Invalid, Unreachable, refusal
from nodedevice_kube.credentials import Access
from urllib3.connection import HTTPSConnection
from urllib3.exceptions import HTTPError

from nodedevice_operator.kube.credentials import Credentials
from nodedevice_operator.kube.write_fence import WriteFence

T = TypeVar("T")

_CONNECT_SECONDS: Final = 5.0
# to connect, and to wait for a response
_TIMEOUT: Final = (_CONNECT_SECONDS, 15.0)
_HTTPS_PORT: Final = 443


def typed_client(login: Credentials, fence: WriteFence | None = None) -> ApiClient:
    """A client of that API server. fence: what every write must pass just before it is sent; None lets all pass."""
    configuration = Configuration(host=login.server)
    # The API server validates; older and newer ones have fields and values that the package does not know.
    configuration.client_side_validation = False
    client = ApiClient(configuration)
    client.rest_client.pool_manager = _Connections(login, fence)  # type: ignore[assignment]  # all that is called of it
    return client


async def call(verb: str, what: str, method: Callable[..., T], *arguments: Any, **options: Any) -> T:
    """Calls a method of a typed API in a thread. verb, what: the request, for errors. Raises ApiError."""
    try:
        return await in_thread(partial(method, *arguments, _request_timeout=_TIMEOUT, **options))
    except ApiException as exc:
        if not exc.status:
            # the package's form of a TLS problem
            raise Unreachable(verb, what, " ".join(str(exc.reason).split())) from exc
        body = exc.body.encode() if isinstance(exc.body, str) else exc.body or b""
        raise refusal(verb, what, exc.status, body, (exc.headers or {}).get("Retry-After")) from exc
    except (ValueError, RecursionError) as exc:
        # pydantic's ValidationError is a ValueError; its text quotes the response
        raise Invalid(verb, what, "the response has another form than the kubernetes package expects") from exc
    except (HTTPError, OSError) as exc:
        reason = getattr(exc, "reason", None) or exc
        raise Unreachable(verb, what, " ".join(str(reason).split())) from exc


class _Connections:
    """Takes the place of the package's connections: each request has the credentials of its moment."""

    def __init__(self, login: Credentials, fence: WriteFence | None) -> None:
        self._login, self._fence = login, fence
        self._access: Access | None = None

    def request(self, method: str, url: str, **options: Any) -> urllib3.BaseHTTPResponse:
        """Sends it. Raises CredentialsError, NotLeading, and what urllib3 raises."""
        access = self._login.access_now()
        if access is not self._access:
            self._access, self._manager = access, _manager(self._login)
        # The package's default headers have one value per name; a user may be impersonated in several groups.
        headers = urllib3.HTTPHeaderDict(options.pop("headers", None) or {})
        headers.extend(access.headers)
        if method != "GET" and self._fence is not None:
            self._fence.check(method, urlsplit(url).path)
        return self._manager.request(method, url, redirect=False, headers=headers, **options)


def _manager(login: Credentials) -> urllib3.PoolManager:
    options = login.transport_options()
    tls = options.get("ssl")
    common: dict[str, Any] = {"retries": False}
    if tls is not None:
        common |= {"ssl_context": tls, "cert_reqs": tls.verify_mode}
    proxy = options.get("proxy")
    if not proxy:
        return urllib3.PoolManager(**common)
    manager = urllib3.ProxyManager(proxy, proxy_headers=options.get("proxy_headers"), **common)
    manager.pool_classes_by_scheme = {**manager.pool_classes_by_scheme, "https": _TunnelledPool}
    return manager


class _Tunnelled(HTTPSConnection):
    """Through a proxy by the core's CONNECT: that of http.client reads header lines without an end."""

    def _tunnel(self) -> None:
        connection, host = self.sock, self._tunnel_host
        assert connection is not None
        assert host is not None
        headers: dict[str, str] = dict(self._tunnel_headers)  # type: ignore[attr-defined]  # of http.client
        tunnels.lead(connection, host, self._tunnel_port or _HTTPS_PORT, headers, time.monotonic() + _CONNECT_SECONDS)
        connection.settimeout(_CONNECT_SECONDS)


class _TunnelledPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Tunnelled
