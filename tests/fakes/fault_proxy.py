"""A way to the API server on which anything can go wrong: frozen watches, cut connections, answers and lines of its own.

    with FaultProxy(control_plane.admin_kubeconfig) as proxy:
        operator.reach_by(proxy.url)
        proxy.rule("GET", "/leases", 3, 429, refusal(429, "TooManyRequests", "later"))

Everything else goes on to the real API server as it came, the caller's own token included. Where that is unreachable, the caller's
connection is cut.
"""

import asyncio
import base64
import contextlib
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import aiohttp
import yaml
from aiohttp import web

from tests.cluster.control_plane.certificates import Certificate
from tests.fakes.virtual_time import later

_HOP: Final = {"host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"}
_SETTLE_SECONDS: Final = 0.1


@dataclass
class Rule:
    """The next `count` requests of that method whose path ends so get that answer; a watch is the method WATCH.

    at: when each came (monotonic seconds), its path and field selector.
    """

    method: str
    path: str
    count: int
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    at: list[tuple[float, str]] = field(default_factory=list)

    @property
    def given(self) -> int:
        return len(self.at)

    @property
    def is_over(self) -> bool:
        return self.given >= self.count


def refusal(code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> bytes:
    """A Status as the API server writes it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**status, "message": message, "details": {"causes": causes or []}}).encode()


class FaultProxy:
    """Serves on loopback in a thread of its own, for the length of a block.

    kubeconfig: where the API server is, and by which authority it is known. certificate: to serve TLS with; plain HTTP without.
    rules: asked in order. requests: when each came (monotonic seconds), its method and path. is_frozen: nothing comes over watches
    any more, though their connections stay. frozen_kinds: nor over those of these kinds (plurals). halved_kinds: of each list of
    these kinds, and of the next line of each watch, only the first half is passed on, and the connection is closed; halved: how
    often. is_held: nothing comes over watches, and it comes later, once that is cleared. is_old: like an API server whose cache
    lags behind: what watches bring is held, and every second list that any version would do for is one from before. slow_writes:
    how long the answers to writes take (seconds, in turn), by the end of their path; what they write is there after half of that.
    """

    def __init__(self, kubeconfig: Path, certificate: Certificate | None = None) -> None:
        [cluster] = [entry["cluster"] for entry in yaml.safe_load(kubeconfig.read_text())["clusters"]]
        self._server = cluster["server"]
        self._authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            self._tls.load_cert_chain(certificate.certificate, certificate.key)
        self.url = ""
        self.rules: list[Rule] = []
        self.requests: list[tuple[float, str, str]] = []
        self.is_frozen = threading.Event()
        self.is_held, self.is_old = threading.Event(), threading.Event()
        self.frozen_kinds: frozenset[str] = frozenset()
        self.halved_kinds: frozenset[str] = frozenset()
        self.halved: Counter[str] = Counter()
        self.slow_writes: Mapping[str, Iterator[float]] = {}
        self._watches: list[tuple[web.Request, web.StreamResponse]] = []
        self._silent: set[int] = set()
        # lists that any version would do for, by path: one from before, and whether it is the next answer
        self._earlier: dict[str, tuple[bytes, bool]] = {}
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._runner: web.AppRunner
        self._end = asyncio.Event()
        # whose end also ends what still goes on, and closes connections that were only let go
        self._thread = threading.Thread(target=asyncio.run, args=[self._run()], name="fault proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def rule(self, *args: Any, **options: Any) -> Rule:
        made = Rule(*args, **options)
        self.rules.append(made)
        return made

    def cut(self, kind: str = "") -> int:
        """Cut the watches of that kind (its plural), or every connection; how many were open."""
        return self._do(self._cut_watches(kind) if kind else self._cut_all())

    def send(self, kind: str, line: bytes) -> int:
        """Send a line that the API server never sent over the watches of that kind; over how many."""
        return self._do(self._send(kind, line))

    def silence(self) -> int:
        """Nothing comes any more over the watches that are open, though their connections stay; how many they are."""
        self._silent = {id(request) for request, _ in list(self._watches)}
        return len(self._silent)

    def lead(self, kubeconfig: Path) -> Path:
        """Change that file, which is for the API server: programs that are started with it from now on come here instead."""
        text = kubeconfig.read_text()
        assert self._server in text
        kubeconfig.write_text(text.replace(self._server, self.url))
        return kubeconfig

    def count(self, method: str, end: str, since: float = 0.0) -> int:
        """The number of requests with this method whose path has this end, from `since` on (monotonic seconds)."""
        asked = [how for when, how, path in list(self.requests) if when >= since and path.endswith(end)]
        return asked.count(method)

    def open_watches(self, kind: str) -> int:
        return len(self._of(kind))

    def _do(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def _of(self, kind: str) -> list[tuple[web.Request, web.StreamResponse]]:
        return [watch for watch in list(self._watches) if watch[0].path.endswith(f"/{kind}")]

    async def _cut_watches(self, kind: str) -> int:
        found = self._of(kind)
        for request, _ in found:
            if request.transport is not None:
                # not aborted: what was answered so far, its status above all, is still sent
                request.transport.close()
        return len(found)

    async def _cut_all(self) -> int:
        server = self._runner.server
        transports = [open_.transport for open_ in server.connections if open_.transport] if server is not None else []
        for transport in transports:
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
        return len(transports)

    async def _send(self, kind: str, line: bytes) -> int:
        found = self._of(kind)
        for _, passed in found:
            await passed.write(line)
        return len(found)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        connector = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cadata=self._authority))
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as self._client:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._handle)
            # whoever hangs up ends what is passed on
            self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await self._runner.setup()
            await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
            self.url = f"http{'s' if self._tls else ''}://127.0.0.1:{self._runner.addresses[0][1]}"
            self._is_up.set()
            await self._end.wait()
            for site in list(self._runner.sites):
                await site.stop()
            # TLS that is being agreed on counts as a connection only afterwards
            await asyncio.sleep(_SETTLE_SECONDS)
            await self._cut_all()
            await self._runner.cleanup()
        await asyncio.sleep(_SETTLE_SECONDS)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        method = "WATCH" if is_watch else request.method
        self.requests.append((time.monotonic(), method, request.path))
        for rule in self.rules:
            if rule.method == method and request.path.endswith(rule.path) and not rule.is_over:
                rule.at.append((time.monotonic(), f"{request.path}?{request.query.get('fieldSelector', '')}"))
                return web.Response(status=rule.status, body=rule.body, headers=rule.headers)
        half = self._half_of_its_time(request)
        await later(half)
        try:
            async with self._asked(request) as answer:
                await later(half)
                kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
                kind = request.path.rpartition("/")[2]
                if not is_watch:
                    body = self._as_a_cache_has_it(request, answer.status, await answer.read())
                    if request.method == "GET" and kind in self.halved_kinds:
                        whole = web.StreamResponse(headers=kept)
                        whole.content_length = len(body)
                        await whole.prepare(request)
                        await self._halve(request, kind, body, whole)
                        return whole
                    return web.Response(status=answer.status, headers=kept, body=body)
                return await self._watch(request, answer, web.StreamResponse(status=answer.status, headers=kept))
        except (aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=502)

    def _half_of_its_time(self, request: web.Request) -> float:
        ends = (end for end in self.slow_writes if request.method != "GET" and request.path.endswith(end))
        return next((next(self.slow_writes[end]) / 2 for end in ends), 0.0)

    def _as_a_cache_has_it(self, request: web.Request, status: int, body: bytes) -> bytes:
        """What an API server that lags behind answers, by turns with what the others do. Only lists of version 0 may be old."""
        if request.query.get("resourceVersion") != "0" or status != 200:
            return body
        earlier, is_next = self._earlier.get(request.path_qs, (body, False))
        if not self.is_old.is_set():
            earlier, is_next = body, False
        self._earlier[request.path_qs] = earlier, not is_next
        return earlier if is_next else body

    @contextlib.asynccontextmanager
    async def _asked(self, request: web.Request) -> AsyncIterator[aiohttp.ClientResponse]:
        """The API server's answer. What is left of it unread is cut: TLS that is only let go may outlive the loop."""
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        url, data = f"{self._server}{request.raw_path}", await request.read() or None
        async with self._client.request(request.method, url, headers=headers, data=data) as answer:
            try:
                yield answer
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def _watch(
        self, request: web.Request, answer: aiohttp.ClientResponse, passed: web.StreamResponse
    ) -> web.StreamResponse:
        kind = request.path.rpartition("/")[2]
        with contextlib.suppress(aiohttp.ClientConnectionResetError):
            await passed.prepare(request)
            self._watches.append((request, passed))
            try:
                await self._stream(request, kind, answer.content, passed)
            finally:
                self._watches.remove((request, passed))
        return passed

    async def _stream(
        self, request: web.Request, kind: str, content: aiohttp.StreamReader, passed: web.StreamResponse
    ) -> None:
        async for chunk in content.iter_any():
            if self.is_frozen.is_set() or kind in self.frozen_kinds or id(request) in self._silent:
                continue
            while self.is_held.is_set() or self.is_old.is_set():
                await asyncio.sleep(_SETTLE_SECONDS)
            if kind in self.halved_kinds:
                await self._halve(request, kind, chunk, passed)
                return
            await passed.write(chunk)

    async def _halve(self, request: web.Request, kind: str, data: bytes, passed: web.StreamResponse) -> None:
        await passed.write(data[: len(data) // 2])
        self.halved[kind] += 1
        if request.transport is not None:
            request.transport.close()
