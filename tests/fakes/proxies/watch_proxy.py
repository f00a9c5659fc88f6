"""A way to the API server on which watches can be frozen: their connections stay, and nothing comes over them any more.

Plain HTTP on loopback; what is asked goes on to the API server as it came, the caller's own token included.
"""

import asyncio
import contextlib
import ssl
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
from aiohttp import web

_HOP: Final = {"host", "connection", "transfer-encoding", "content-length", "content-encoding", "accept-encoding"}


class WatchProxy:
    """Runs in a thread of its own until `close`."""

    def __init__(self, server: str, authority: Path) -> None:
        self._server = server
        self._authority = authority
        self.is_frozen = threading.Event()
        self.url = ""
        self._is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop
        self._end = asyncio.Event()
        # whose end also ends what still goes on, and closes connections that were only let go
        self._thread = threading.Thread(target=asyncio.run, args=[self._run()])
        self._thread.start()
        assert self._is_up.wait(10)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        context = ssl.create_default_context(cafile=self._authority)
        timeout = aiohttp.ClientTimeout(total=None)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), timeout=timeout) as self._client:
            app = web.Application(client_max_size=2**24)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            # whoever hangs up ends what is passed on
            runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            self._is_up.set()
            await self._end.wait()
            await runner.cleanup()

    @contextlib.asynccontextmanager
    async def _asked(self, method: str, url: str, **options: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        """The API server's answer. What is left of it unread is cut: TLS that is only let go may outlive the loop."""
        async with self._client.request(method, url, **options) as answer:
            try:
                yield answer
            finally:
                if answer.connection is not None and answer.connection.transport is not None:
                    answer.connection.transport.abort()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP}
        url = f"{self._server}{request.raw_path}"
        async with self._asked(request.method, url, headers=headers, data=await request.read() or None) as answer:
            kept = {key: value for key, value in answer.headers.items() if key.lower() not in _HOP}
            if "watch" not in request.query:
                return web.Response(status=answer.status, headers=kept, body=await answer.read())
            passed = web.StreamResponse(status=answer.status, headers=kept)
            with contextlib.suppress(aiohttp.ClientConnectionResetError):
                await passed.prepare(request)
                async for chunk in answer.content.iter_any():
                    if not self.is_frozen.is_set():
                        await passed.write(chunk)
            return passed
