"""A way to the API server on which anything can happen: answers of its own, watches cut in the middle of a line, foreign lines.

What is asked of it otherwise goes on to the real API server, as in watch_proxy.
"""

import asyncio
import contextlib
import json
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.fakes.proxies.watch_proxy import _HOP, WatchProxy


@dataclass
class Rule:
    """The next `count` requests of that method whose path ends so get that answer; a watch is the method WATCH."""

    method: str
    path: str
    count: int
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    given: int = 0

    @property
    def is_over(self) -> bool:
        return self.given >= self.count


def refusal(code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> bytes:
    """A Status as the API server writes it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps({**status, "message": message, "details": {"causes": causes or []}}).encode()


class TroubleProxy(WatchProxy):
    """`rules` are asked in order. `cut` and `say` reach the watches of one kind (its plural) that are open now."""

    def __init__(self, server: str, authority: Path) -> None:
        self.rules: list[Rule] = []
        # kinds whose watches are frozen although the others are not
        self.frozen_kinds: frozenset[str] = frozenset()
        self._watches: list[tuple[web.Request, web.StreamResponse]] = []
        self._half: set[str] = set()
        self._lock = threading.Lock()
        super().__init__(server, authority)

    def rule(self, *args: Any, **options: Any) -> Rule:
        made = Rule(*args, **options)
        self.rules.append(made)
        return made

    def cut(self, kind: str) -> int:
        """Cut them now; how many."""
        return self._do(self._cut(kind))

    def say(self, kind: str, line: bytes) -> int:
        """Send a line that the API server never said; over how many."""
        return self._do(self._say(kind, line))

    def cut_in_the_next_line(self, kind: str) -> None:
        """Pass on only the first half of what comes next, and hang up."""
        with self._lock:
            self._half.add(kind)

    def is_to_be_cut(self, kind: str) -> bool:
        """Whether that has not happened yet."""
        with self._lock:
            return kind in self._half

    def open_watches(self, kind: str) -> int:
        return len(self._of(kind))

    def _do(self, work: Coroutine[Any, Any, int]) -> int:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    def _of(self, kind: str) -> list[tuple[web.Request, web.StreamResponse]]:
        return [watch for watch in list(self._watches) if watch[0].path.endswith(f"/{kind}")]

    async def _cut(self, kind: str) -> int:
        found = self._of(kind)
        for request, _ in found:
            if request.transport is not None:
                # not aborted: what was answered so far, its status above all, is still sent
                request.transport.close()
        return len(found)

    async def _say(self, kind: str, line: bytes) -> int:
        found = self._of(kind)
        for _, passed in found:
            await passed.write(line)
        return len(found)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        is_watch = "watch" in request.query
        method = "WATCH" if is_watch else request.method
        for rule in self.rules:
            if rule.method == method and request.path.endswith(rule.path) and not rule.is_over:
                rule.given += 1
                return web.Response(status=rule.status, body=rule.body, headers=rule.headers)
        return await self._watch(request) if is_watch else await super()._pass_on(request)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        kind = request.path.rpartition("/")[2]
        async with self._asked("GET", f"{self._server}{request.raw_path}", headers=headers) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            passed = web.StreamResponse(status=answer.status, headers=kept)
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
            if self.is_frozen.is_set() or kind in self.frozen_kinds:
                continue
            if not self.is_to_be_cut(kind):
                await passed.write(chunk)
                continue
            await passed.write(chunk[: len(chunk) // 2])
            with self._lock:
                self._half.discard(kind)
            assert request.transport is not None
            request.transport.close()
            return
