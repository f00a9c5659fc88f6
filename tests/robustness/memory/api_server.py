"""The API server as one agent sees it: lists, pages, watches, and what the agent writes. Objects are made when they are sent.

    with PlayedApi() as api:
        api.put("pods", "n/p0", lambda: b'{"metadata": ...}')

An object is a dict, or a function that makes its JSON: a list of many large ones takes no memory here. All pods are of the agent's
node; lists of other kinds have their pages. What is put while an agent watches is an event.
"""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Self

from aiohttp import web

Object = Callable[[], bytes]
Json = dict[str, Any]

_JSON: Final = {"Content-Type": "application/json"}
_BOOKMARK_SECONDS: Final = 20.0
# kinds of the core group; in the lists of all others `metadata` follows `items`, as the API server writes custom resources
_CORE: Final = ("pods", "nodes")


@dataclass
class _Kind:
    objects: dict[str, Object] = field(default_factory=dict)
    # version, type and object of each event
    events: list[tuple[int, str, Object]] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class PlayedApi:
    """Serves HTTP on loopback in a thread of its own, for the length of a block.

    lists: the query of each list, by kind. reads: how many single objects were read, by kind.
    served: plurals, by group and version, that discovery shows.
    """

    def __init__(self) -> None:
        self.url = ""
        self.lists: dict[str, list[dict[str, str]]] = {}
        self.reads: Counter[str] = Counter()
        self.served: dict[str, tuple[str, ...]] = {}
        self._version = 1
        self._kinds: dict[str, _Kind] = {}
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end: asyncio.Event
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="played API server")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def put(self, kind: str, key: str, found: Json | Object) -> None:
        """Make or change an object. key: its name, after its namespace and a slash where it has one."""
        self._call(lambda: self._put(kind, key, found))

    def remove(self, kind: str, key: str) -> None:
        self._call(lambda: self._remove(kind, key))

    def stored(self, kind: str, key: str) -> Json:
        """As it is stored now; empty where there is none."""
        made = self._kind(kind).objects.get(key)
        return json.loads(made()) if made is not None else {}

    def _call(self, act: Callable[[], object]) -> None:
        done = threading.Event()

        def acted() -> None:
            act()
            done.set()

        self._loop.call_soon_threadsafe(acted)
        assert done.wait(60)

    # -- what is stored -------------------------------------------------------------------------------------------------

    def _kind(self, kind: str) -> _Kind:
        return self._kinds.setdefault(kind, _Kind())

    def _put(self, kind: str, key: str, found: Json | Object) -> bytes:
        stored = self._kind(kind)
        self._version += 1
        if isinstance(found, dict):
            content = json.dumps(self._with_version(found)).encode()
            made: Object = lambda: content  # noqa: E731  # a constant
        else:
            made = found
        event = "MODIFIED" if key in stored.objects else "ADDED"
        stored.objects[key] = made
        self._happened(stored, event, made)
        return made() if isinstance(found, dict) else b""

    def _with_version(self, found: Json) -> Json:
        metadata = {"uid": f"uid-{self._version}", **found.get("metadata", {}), "resourceVersion": str(self._version)}
        return {**found, "metadata": metadata}

    def _remove(self, kind: str, key: str) -> None:
        stored = self._kind(kind)
        self._version += 1
        self._happened(stored, "DELETED", stored.objects.pop(key))

    def _happened(self, stored: _Kind, event: str, made: Object) -> None:
        stored.events.append((self._version, event, made))
        stored.changed.set()
        stored.changed = asyncio.Event()

    # -- requests -------------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._is_up.set()
        await self._end.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        # api/v1/…, or apis/GROUP/VERSION/…
        parts = request.path.strip("/").split("/")
        group = "/".join(parts[1 : 2 if parts[0] == "api" else 3])
        rest = parts[2 if parts[0] == "api" else 3 :]
        if not rest:
            served = [{"name": name} for name in self.served.get(group, ())]
            return web.json_response({"resources": served}, status=200 if served else 404)
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = f"{rest[1]}/", rest[2:]
        kind, name = rest[0], rest[1] if len(rest) > 1 else ""
        if request.method == "GET" and not name:
            is_watch = "watch" in request.query
            return await (self._watch if is_watch else self._list)(request, kind)
        if request.method == "GET":
            self.reads[kind] += 1
            return self._found(kind, f"{namespace}{name}")
        return await self._written(request, kind, namespace, name, rest[2:])

    def _found(self, kind: str, key: str) -> web.Response:
        made = self._kind(kind).objects.get(key)
        if made is None:
            return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound"}, status=404)
        return web.Response(body=made(), headers=_JSON)

    async def _written(
        self, request: web.Request, kind: str, namespace: str, name: str, subresource: list[str]
    ) -> web.Response:
        body: Json = json.loads(await request.read())
        key = f"{namespace}{name or body['metadata']['name']}"
        before = self.stored(kind, key)
        if request.method == "PATCH":
            if subresource and not before:
                return self._found(kind, key)
            body = {**before, **body, "metadata": {**before.get("metadata", {}), **body["metadata"]}}
        if {**body, "metadata": 0} == {**before, "metadata": 0}:
            return self._found(kind, key)
        body["metadata"].pop("resourceVersion", None)
        return web.Response(body=self._put(kind, key, body), headers=_JSON)

    async def _list(self, request: web.Request, kind: str) -> web.StreamResponse:
        self.lists.setdefault(kind, []).append(dict(request.query))
        version, items = self._version, [*self._selected(request, kind)]
        begin, most = int(request.query.get("continue", "0")), int(request.query.get("limit", "0")) or len(items)
        more = str(begin + most) if begin + most < len(items) else ""
        metadata = json.dumps({"resourceVersion": str(version), "continue": more}).encode()
        response = web.StreamResponse(headers=_JSON)
        await response.prepare(request)
        head, tail = b'"metadata":%b,' % metadata, b""
        if kind not in _CORE:
            head, tail = b"", b',"metadata":%b' % metadata
        await response.write(b'{"apiVersion":"v1",%b"items":[' % head)
        for number, made in enumerate(items[begin : begin + most]):
            await response.write((b"," if number else b"") + made())
        await response.write(b"]%b}\n" % tail)
        return response

    def _selected(self, request: web.Request, kind: str) -> Iterator[Object]:
        named = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
        return (made for key, made in self._kind(kind).objects.items() if named in ("", key.rpartition("/")[2]))

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        stored, version = self._kind(kind), int(request.query.get("resourceVersion", "0"))
        named = request.query.get("fieldSelector", "").partition("metadata.name=")[2]
        response = web.StreamResponse(headers=_JSON)
        await response.prepare(request)
        while True:
            for at, event, made in list(stored.events):
                if at <= version:
                    continue
                version, content = at, made()
                if not named or json.loads(content)["metadata"]["name"] == named:
                    await response.write(b'{"type":"%b","object":%b}\n' % (event.encode(), content))
            try:
                async with asyncio.timeout(_BOOKMARK_SECONDS):
                    await stored.changed.wait()
            except TimeoutError:
                bookmark = {"metadata": {"resourceVersion": str(max(version, self._version))}}
                line = json.dumps({"type": "BOOKMARK", "object": bookmark}).encode()
                await response.write(line + b"\n")
