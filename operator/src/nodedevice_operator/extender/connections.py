"""Takes the connections of a listening socket, so many at most: whoever has not shown who it is gives way first.

With TLS a connection is anybody's until its handshake is done, and costs 300 KiB in it. asyncio's own servers take as many as there
are descriptors, and wait for each handshake for a minute.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import web

log = logging.getLogger(__name__)

MOST: Final = 128
HANDSHAKE_SECONDS: Final = 5.0
# descriptors are used up: some are free again in a moment
_PAUSE_SECONDS: Final = 0.5


class Connections:
    """Those of one server. context: the TLS that a new one gets; None: plain. is_busy: whether a request is under way there."""

    def __init__(
        self,
        listening: socket.socket,
        server: Callable[[], web.Server],
        context: Callable[[], ssl.SSLContext | None],
        is_busy: Callable[[asyncio.BaseTransport], bool],
        most: int = MOST,
    ) -> None:
        self._listening = listening
        self._server = server
        self._context = context
        self._is_busy = is_busy
        self._most = most
        # oldest first
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}

    async def work(self) -> None:
        """Take them, until cancelled."""
        loop = asyncio.get_running_loop()
        self._listening.setblocking(False)
        try:
            while True:
                try:
                    connection, _ = await loop.sock_accept(self._listening)
                except OSError as exc:
                    log.warning("cannot accept a connection; retrying", extra={"error": str(exc)})
                    await asyncio.sleep(_PAUSE_SECONDS)
                    continue
                if self._has_room():
                    self._handshakes[connection] = asyncio.create_task(self._begin(connection))
                else:
                    connection.close()
        finally:
            for task in self._handshakes.values():
                task.cancel()
            await asyncio.gather(*self._handshakes.values(), return_exceptions=True)

    def _has_room(self) -> bool:
        """Whether there is room for another one; made by closing the oldest that nobody needs."""
        handlers = self._server().connections
        if len(self._handshakes) + len(handlers) < self._most:
            return True
        if self._handshakes:
            oldest = next(iter(self._handshakes))
            self._handshakes.pop(oldest).cancel()
            return True
        for handler in handlers:
            transport = handler.transport
            if transport is not None and not self._is_busy(transport):
                transport.abort()
                return True
        return False

    async def _begin(self, connection: socket.socket) -> None:
        loop, context = asyncio.get_running_loop(), self._context()
        seconds = HANDSHAKE_SECONDS if context is not None else None
        is_taken = False
        try:
            # a handshake that fails is the client's own affair
            with contextlib.suppress(OSError):
                await loop.connect_accepted_socket(
                    self._server(), connection, ssl=context, ssl_handshake_timeout=seconds
                )
                is_taken = True
        finally:
            self._handshakes.pop(connection, None)
            if not is_taken:
                connection.close()
