"""Sends requests to one API server with the current credentials. Returns responses of 2xx, or raises an error of the client core.

This is the only asynchronous transport. It retries only a request refused with 401, once, with credentials that were read again.
"""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Final, Self

from nodedevice_kube.api_errors import ApiError, NoAnswer, Silent, TooBig, Unreachable, WatchInterrupted, refusal
from nodedevice_kube.credentials import Access, Credentials
from nodedevice_kube.errors import CredentialProblem

from nodedevice_common.api_exchange import Broken, Late, Request, Response, Sender
from nodedevice_common.log_once import LogOnce
from nodedevice_common.threads import Shared

log = logging.getLogger(__name__)

# the limit of a kubeconfig's log-in program
EXEC_SECONDS: Final = 30.0
# A slow response takes at most so many times the allowed silence.
_MOST_SILENCES: Final = 10
# the longest body of a refusal: a Status is much shorter
_MOST_REFUSAL_BYTES: Final = 64 * 1024


class Transport:
    """seconds: how long the API server may be silent, before a response and within it."""

    def __init__(self, credentials: Credentials, sender: Sender, *, seconds: float) -> None:
        self._credentials, self._sender, self._seconds = credentials, sender, seconds
        self._refreshed = Shared(credentials.refresh)
        self._problems = LogOnce(log)

    async def call(
        self, verb: str, what: str, request: Request, *, most_bytes: float = math.inf, seconds: float | None = None
    ) -> bytes:
        """Return the whole body. verb, what: for errors. seconds: for the whole call; by default ten times the seconds of
        `__init__`.

        Raises ApiError; TooBig as soon as the body exceeds most_bytes.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(_MOST_SILENCES * self._seconds if seconds is None else seconds):
                async with await self.open(verb, what, request) as stream:
                    return await stream.read(most_bytes)
        except TimeoutError as exc:
            raise self.error(verb, what, Late(time.monotonic() - began)) from exc

    async def open(
        self, verb: str, what: str, request: Request, *, is_watch: bool = False, seconds: float | None = None
    ) -> "Stream":
        """Return a response of 2xx, whose body is still to be read; it must be closed. Raises ApiError.

        is_watch: a body that ends early is a WatchInterrupted, and silence in it is Silent. seconds: the allowed silence of a
        watch's body (None: for ever).
        """
        access = await self._access(verb, what)
        response = await self._send(verb, what, request, access)
        try:
            if response.status == HTTPStatus.UNAUTHORIZED:
                self._credentials.refused(access)
                renewed = await self._access(verb, what)
                if renewed is not access:
                    response.close()
                    response = await self._send(verb, what, request, renewed)
            if response.status // 100 == 2:
                return Stream(
                    self, response, verb, what, is_watch=is_watch, seconds=seconds if is_watch else self._seconds
                )
            raise await self._refusal(verb, what, request, response)
        except BaseException:
            response.close()
            raise

    async def close(self) -> None:
        await self._sender.close()

    async def _access(self, verb: str, what: str) -> Access:
        credentials = self._credentials
        try:
            access = await self._refreshed.result() if credentials.is_due else credentials.current
        except CredentialProblem as exc:
            raise Unreachable(verb, what, str(exc)) from exc
        self._problems.report("credentials cannot be read again; earlier ones are used", credentials.problem)
        return access

    async def _send(self, verb: str, what: str, request: Request, access: Access) -> Response:
        try:
            return await self._sender.send(request, access, self._seconds)
        except Broken as exc:
            raise self.error(verb, what, exc) from exc

    async def _refusal(self, verb: str, what: str, request: Request, response: Response) -> ApiError:
        body = b""
        try:
            async with asyncio.timeout(self._seconds):
                while len(body) < _MOST_REFUSAL_BYTES and (octets := await response.read(self._seconds)):
                    body += octets
        except (Broken, TimeoutError):
            # The status says enough.
            pass
        return refusal(verb, what, response.status, body, response.header("retry-after"), method=request.method)

    def error(self, verb: str, what: str, problem: Broken, *, is_watch: bool = False) -> ApiError:
        proxy = self._credentials.proxy
        text = str(problem) + (f", by the proxy {proxy.url}" if proxy is not None else "")
        if isinstance(problem, Late):
            return Silent(verb, what, text) if is_watch else NoAnswer(verb, what, text, problem.seconds)
        return WatchInterrupted(verb, what, text) if is_watch else Unreachable(verb, what, text)


class Stream:
    """The body of a response. The connection can serve other requests after it is read to its end and closed."""

    def __init__(
        self, transport: Transport, response: Response, verb: str, what: str, *, is_watch: bool, seconds: float | None
    ) -> None:
        self._transport, self._response, self._seconds = transport, response, seconds
        self._verb, self._what, self._is_watch = verb, what, is_watch
        self.status = response.status

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield chunks as they arrive. Raises ApiError."""
        while octets := await self._next():
            yield octets
            # the next chunk may be minutes away
            del octets

    async def read(self, most_bytes: float = math.inf) -> bytes:
        """Return the whole body. Raises ApiError, and TooBig as soon as it exceeds most_bytes."""
        body = bytearray()
        while octets := await self._next():
            body += octets
            if len(body) > most_bytes:
                problem = f"the response has more than {most_bytes} bytes"
                raise TooBig(self._verb, self._what, problem, self.status)
        return bytes(body)

    def close(self) -> None:
        self._response.close()

    async def _next(self) -> bytes:
        try:
            return await self._response.read(self._seconds)
        except Broken as exc:
            raise self._transport.error(self._verb, self._what, exc, is_watch=self._is_watch) from exc
