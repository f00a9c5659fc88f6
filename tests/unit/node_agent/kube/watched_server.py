"""An API server whose lists and watches bring what a test says, for the test files that import `server`.

from tests.unit.node_agent.kube.watched_server import server as server
"""

import asyncio
import json
from typing import Any

import pytest
from nodedevice_common.api_connections import Broken, Request

from tests.fakes import api_answers
from tests.fakes.api_answers import Answer, json_answer, path_of, query_of


class Server(api_answers.Server):
    """Lists of `items`, of version 10 and up, and `status` and `chunks` for each watch. fails: raised instead of a list.

    asked: the query of each request, and when (the loop's clock).
    """

    def __init__(self) -> None:
        self.status = 200
        self.version = 9
        self.items: list[dict[str, Any]] = []
        self.fails: Broken | None = None
        self.chunks: list[bytes | Exception | None] = []
        self.asked: list[tuple[float, dict[str, str]]] = []

    def answer(self, request: Request) -> Answer:
        query = query_of(request)
        self.asked.append((asyncio.get_running_loop().time(), {**query, "path": path_of(request)}))
        if "watch" in query:
            return Answer(*self.chunks, status=self.status)
        if self.fails is not None:
            raise self.fails
        self.version += 1
        return json_answer({"metadata": {"resourceVersion": str(self.version)}, "items": self.items})

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
