"""An API server whose lists and watches bring what a test says, for the test files that import `server`.

from tests.unit.node_agent.kube.watched_server import server as server
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest


class Stream(httpx2.AsyncByteStream):
    """These chunks, an error or silence."""

    def __init__(self, chunks: list[bytes | Exception | None]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            if chunk is None:
                await asyncio.Event().wait()
            elif isinstance(chunk, Exception):
                raise chunk
            else:
                yield chunk


class Server(httpx2.AsyncBaseTransport):
    """Lists of `items`, of version 10 and up, and `status` and `chunks` for each watch. fails: raised instead of a list.

    asked: the query of each request, and when (the loop's clock).
    """

    def __init__(self) -> None:
        self.status = 200
        self.version = 9
        self.items: list[dict[str, Any]] = []
        self.fails: Exception | None = None
        self.chunks: list[bytes | Exception | None] = []
        self.asked: list[tuple[float, dict[str, str]]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((asyncio.get_running_loop().time(), {**dict(request.url.params), "path": request.url.path}))
        if "watch" not in request.url.params:
            if self.fails is not None:
                raise self.fails
            self.version += 1
            body = {"metadata": {"resourceVersion": str(self.version)}, "items": self.items}
            return httpx2.Response(200, json=body, request=request)
        headers = {"Content-Type": "application/json"}
        return httpx2.Response(self.status, stream=Stream(self.chunks), headers=headers, request=request)

    def consistent_reads(self) -> list[str]:
        """The paths of lists of one object."""
        return [query["path"] for _, query in self.asked if query.get("limit") == "1"]


@pytest.fixture
def server() -> Server:
    return Server()


def line(event: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": event, "object": found}, ensure_ascii=False).encode() + b"\n"


def pod(version: int, **metadata: Any) -> dict[str, Any]:
    found = {"name": "one", "uid": "u", "resourceVersion": str(version), **metadata}
    return {"metadata": found, "spec": {"containers": []}, "status": {}}


class RecordedEvents:
    """An EventHandler. lists, updates: the version of each."""

    known_version = 0

    def __init__(self) -> None:
        self.lists: list[int] = []
        self.updates: list[int] = []

    def synced(self, objects: list[Any], version: int) -> None:
        self.lists.append(version)

    def updated(self, found: Any) -> None:
        self.updates.append(int(found.metadata.resourceVersion))

    def deleted(self, found: Any) -> None: ...
