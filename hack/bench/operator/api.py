"""A minimal client to load an API server in benchmarks: one connection pool, JSON, applies and watches.

Knows no kinds of objects. Its cost must not count as the operator's, so it is kept small.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from nodedevice_kube import credentials

_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
# of a request that an API server without capacity refuses; agents retry as well
_TRIES = 30
# of a watch that the API server ends: the object is a Status for all kinds
_ERROR = b'{"type":"ERROR"'
_PAUSE_SECONDS = 1.0

T = TypeVar("T")


class Refused(Exception):
    """The API server returned an error to a benchmark."""


class Api:
    """Requests with the kubeconfig's identity, up to a maximum in parallel."""

    def __init__(self, kubeconfig: Path, in_flight: int = 24) -> None:
        login = credentials.load(str(kubeconfig))
        self._server, access = login.settings.server, login.current
        connector = aiohttp.TCPConnector(limit=0, ssl=access.tls if access.tls is not None else False)
        headers = dict(access.headers)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers)
        self._slots = asyncio.Semaphore(in_flight)

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        return await self._request("GET", path, None, query or {})

    async def post(self, path: str, body: Any, manager: str) -> bytes:
        return await self._request("POST", path, body, {"fieldManager": manager})

    async def put(self, path: str, body: Any, manager: str) -> bytes:
        return await self._request("PUT", path, body, {"fieldManager": manager})

    async def merge(self, path: str, body: Any, manager: str) -> bytes:
        return await self._request("PATCH", path, body, {"fieldManager": manager}, _MERGE)

    async def apply(self, path: str, body: Any, manager: str) -> bytes:
        """Server-side apply, with force."""
        return await self._request("PATCH", path, body, {"fieldManager": manager, "force": "true"}, _APPLY)

    async def delete(self, path: str) -> bytes:
        """Without a grace period."""
        return await self._request("DELETE", path, {"gracePeriodSeconds": 0}, {})

    async def watch(self, path: str, form: type[T], query: Mapping[str, str], accept: str = "") -> AsyncIterator[T]:
        """Events until the API server ends the watch, also by an event of type ERROR; each decoded as `form`.

        accept: another content type than JSON.
        """
        decoder = msgspec.json.Decoder(form)
        parameters = {"watch": "1", "allowWatchBookmarks": "true", **query}
        headers = {"Accept": accept} if accept else {}
        async with self._session.get(f"{self._server}{path}", params=parameters, headers=headers) as answer:
            if answer.status != 200:
                raise Refused(f"watch {path}: HTTP {answer.status}")
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(_ERROR):
                        return
                    yield decoder.decode(line)

    async def _request(
        self, verb: str, path: str, body: Any, query: Mapping[str, str], content_type: str = "application/json"
    ) -> bytes:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        for tries_left in reversed(range(_TRIES)):
            async with (
                self._slots,
                self._session.request(
                    verb, f"{self._server}{path}", params=query, data=data, headers=headers
                ) as answer,
            ):
                content = await answer.read()
            if answer.status < 300:
                return content
            # retry only requests that may safely take effect twice
            is_worth_it = answer.status == 429 or (answer.status >= 500 and verb not in ("POST", "PUT"))
            if not is_worth_it or not tries_left:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        raise Refused(f"{verb} {path}: HTTP {answer.status}: {content[:300].decode(errors='replace')}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
