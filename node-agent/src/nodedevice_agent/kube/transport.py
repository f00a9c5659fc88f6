"""The agent's HTTP transport: TLS, credentials and proxy of the client core, below lightkube and httpx2.

Source: httpx2 @ 2.16 AsyncBaseTransport.
"""

import asyncio
import socket
from http import HTTPStatus

import httpx2
from nodedevice_common.threads import in_thread_if
from nodedevice_kube.credentials import Access, Credentials
from nodedevice_kube.errors import CredentialProblem

# How long a log-in program of a kubeconfig may take.
EXEC_SECONDS = 30.0
# Each resource's watch holds a connection; the library's limit of 100 would leave none for the other requests. One that is kept for
# the next request has 60 KiB; what a burst has opened beyond a few is closed.
_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=3, keepalive_expiry=90)
# a connection to a peer that vanished is noticed within about half a minute
_KEEPALIVE = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
]


class Transport(httpx2.AsyncBaseTransport):
    """Sends each request with the credentials of that moment, and once more with others when the API server refused them.

    Raises httpx2.TransportError, which names the proxy if there is one, and httpx2.ConnectError without usable credentials.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._access = credentials.refresh()
        self._inner = self._connections(self._access)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        access = await self._current(request)
        response = await self._send(request, access)
        if response.status_code != HTTPStatus.UNAUTHORIZED:
            return response
        self._credentials.refused(access)
        renewed = await self._current(request)
        if renewed is access:
            return response
        await response.aclose()
        return await self._send(request, renewed)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _current(self, request: httpx2.Request) -> Access:
        try:
            access = await in_thread_if(self._credentials.is_due, self._credentials.refresh)
        except CredentialProblem as exc:
            raise httpx2.ConnectError(str(exc), request=request) from exc
        former, has_other = self._inner, access.tls is not self._access.tls
        # Both before anything is awaited, as other requests come meanwhile.
        self._access = access
        if has_other:
            # As client-go does: connections with the former certificate end.
            self._inner = self._connections(access)
            await asyncio.shield(former.aclose())
        return access

    async def _send(self, request: httpx2.Request, access: Access) -> httpx2.Response:
        for name in {name for name, _ in access.headers}:
            request.headers.pop(name, None)
        request.headers = httpx2.Headers([*request.headers.multi_items(), *access.headers])
        try:
            return await self._inner.handle_async_request(request)
        except httpx2.TransportError as exc:
            if self._credentials.proxy is None:
                raise
            reason = str(exc) or type(exc).__name__
            raise type(exc)(f"{reason}, by the proxy {self._credentials.proxy.url}", request=request) from exc

    def _connections(self, access: Access) -> httpx2.AsyncHTTPTransport:
        proxy = self._credentials.proxy
        headers = {"Proxy-Authorization": proxy.authorization} if proxy and proxy.authorization else {}
        return httpx2.AsyncHTTPTransport(
            verify=access.tls if access.tls is not None else False,
            proxy=httpx2.Proxy(proxy.url, headers=headers) if proxy else None,
            socket_options=_KEEPALIVE,
            limits=_LIMITS,
        )
