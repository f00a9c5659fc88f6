"""An informer of NodeDevices against a server with canned responses, and the lines of a watch."""

import asyncio
import json
from typing import Any

from aiohttp import web
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube import credentials
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import ApiHealth
from nodedevice_operator.kube.lists import NODE_DEVICES, Kind
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.metrics import Metrics

from tests.fakes.operator.cluster_model import ClusterModel


class Server:
    """Answers each watch with the next of `answers`: an HTTP status, or pieces of the stream; then it holds the connection.

    An empty piece cuts the connection.
    """

    def __init__(self) -> None:
        self.answers: list[int | list[bytes]] = []
        self.asked: list[dict[str, str]] = []
        self.tokens: set[str | None] = set()
        self.is_over = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        self.tokens.add(request.headers.get("Authorization"))
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, int):
            return web.Response(status=answer, headers={"Retry-After": "5"})
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in answer or ():
            if not piece:
                assert request.transport is not None
                request.transport.close()
            await response.write(piece)
            await asyncio.sleep(0)
        if answer is None:
            await self.is_over.wait()
        return response


class Watched:
    """A watch of NodeDevices, and what became of its events."""

    def __init__(self, server: Server, kubeconfig: str) -> None:
        self.server = server
        self.cache = Cache()
        self.cluster = ClusterModel()
        self.health = ApiHealth("api")
        self.news: list[tuple[str, int | None, int]] = []
        self.touched: list[str] = []
        self.changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.client = Client(credentials.load(kubeconfig), self.health, Metrics().writes)
        self.cache.node_devices.on_update(self._on_event)
        self.cache.pod_devices.on_update(lambda node, _, __: self.touched.append(node))
        self.cache.nodes.on_update(lambda node, _, __: self.touched.append(node))
        self.informer = Informer(NODE_DEVICES, self.cache, self.cluster, self.client)

    def _on_event(self, node: str, before: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        if now is None:
            self.touched.append(node)
            return
        self.news.append((now.node, before.available if before else None, now.available))
        self.changed.set()

    def start(self, kind: Kind[Any] | None = None) -> None:
        """kind: another one than NodeDevices."""
        informer = self.informer if kind is None else Informer(kind, self.cache, self.cluster, self.client)
        self._task = asyncio.create_task(informer.work())

    async def watch(self, *answers: int | list[bytes], until: int) -> None:
        """It works against a server with these answers until so many changes were heard."""
        self.server.answers = [*answers]
        self.start()
        await self.until(until)

    async def follow(self, kind: Kind[Any], *lines: bytes) -> None:
        """A watch of that kind brings these lines, and is taken up again after the last."""
        opened = len(self.server.asked)
        self.server.answers = [[*lines], []]
        if self._task is None:
            self.start(kind)
        async with asyncio.timeout(60):
            while len(self.server.asked) < opened + 2:
                await asyncio.sleep(0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.client.close()

    async def until(self, count: int) -> None:
        """Wait until so many changes were heard."""
        async with asyncio.timeout(60):
            while len(self.news) < count:
                self.changed.clear()
                await self.changed.wait()


def event(version: int, available: int, kind: str = "MODIFIED", node: str = "node-a") -> bytes:
    body: dict[str, Any] = {
        "metadata": {"name": f"{node}.example.com.gpu", "uid": f"nd-{node}", "resourceVersion": str(version)},
        "spec": {"nodeName": node, "resourceName": "example.com/gpu"},
        "status": {"total": available, "healthy": available, "available": available},
    }
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"


def bookmark(version: int, node: str = "") -> bytes:
    """node: of what it has for an object; without one it is none."""
    spec = {"nodeName": node, "resourceName": "example.com/gpu"} if node else {"nodeName": "", "x": 1}
    body = {"kind": "NodeDevice", "metadata": {"resourceVersion": str(version)}, "spec": spec}
    return json.dumps({"type": "BOOKMARK", "object": body}).encode() + b"\n"


ERROR = json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}).encode() + b"\n"
LAST = event(999, 9, node="node-z")


def a_line(kind: str, body: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": body}).encode() + b"\n"
