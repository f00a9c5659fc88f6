"""Typed clients of the `kubernetes` package, for commands that run once: our connection settings, and our errors.

The package's own reader of kubeconfigs ignores `as` and takes a token with the newline of its file. Its clients block.
Source: kubernetes @ 37.0 client/rest.py, urllib3 @ 2.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.client.exceptions import ApiException
from nodedevice_common.threads import in_thread
from nodedevice_kube.api_errors import Invalid, Unreachable, refusal
from nodedevice_kube.credentials import Access
from urllib3.exceptions import HTTPError

from nodedevice_operator.kube.credentials import Credentials

T = TypeVar("T")

# Seconds to connect, and to wait for a response.
_TIMEOUT: Final = (5.0, 15.0)


async def typed_client(login: Credentials) -> ApiClient:
    """A client of that API server, with the credentials of this moment. Raises CredentialsError."""
    access = await login.access()
    configuration = Configuration(host=login.server)
    # The API server validates; older and newer ones have fields and values that the package does not know.
    configuration.client_side_validation = False
    client = ApiClient(configuration)
    client.rest_client.pool_manager = _connections(login, access)
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


def _connections(login: Credentials, access: Access) -> urllib3.PoolManager:
    """Connections as the settings ask for them, on which each request has the headers of `access`."""
    common: dict[str, Any] = {"retries": False}
    if access.tls is not None:
        common |= {"ssl_context": access.tls, "cert_reqs": access.tls.verify_mode}
    proxy = login.proxy
    if proxy is None:
        manager = urllib3.PoolManager(**common)
    else:
        authorization = {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
        manager = urllib3.ProxyManager(proxy.url, proxy_headers=authorization, **common)
    send = manager.urlopen

    def send_with_headers(method: str, url: str, redirect: bool = True, **request: Any) -> urllib3.BaseHTTPResponse:
        all_headers = urllib3.HTTPHeaderDict(request.pop("headers", None) or {})
        for name, value in access.headers:
            all_headers.add(name, value)
        return send(method, url, redirect=False, headers=all_headers, **request)

    # The package's default headers have one value per name; a user may be impersonated in several groups.
    manager.urlopen = send_with_headers  # type: ignore[method-assign]
    return manager
