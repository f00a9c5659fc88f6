"""Keeps the agent connected to the container runtime: reconnects with backoff or by file events, and logs each outage once."""

import asyncio
import logging
import time
from pathlib import Path
from typing import NoReturn

from nodedevice_common.pacing import Backoff

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.runtime import RuntimeHandler
from nodedevice_agent.lib.file_watcher import FileWatcher, Subscription
from nodedevice_agent.lib.filesystem import MAX_PATH_BYTES, is_too_long
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded

log = logging.getLogger(__name__)

# One agent and one runtime on one node: frequent reconnecting harms no other client, and while disconnected no pod with a device
# starts.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
_ATTEMPTS = 3


class NriPlugin:
    """index: two digits, the place among the runtime's plugins. Use run() in the event loop."""

    def __init__(self, handler: RuntimeHandler, socket: Path, index: str) -> None:
        self._handler = handler
        self._socket = socket
        self._index = index
        self._host_devices = HostDeviceStat()
        self._rejections = 0
        self._last_reason = self._reported_reason = ""
        self._backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        with FileWatcher() as watcher:
            changes = watcher.subscribe()
            while True:
                changes.follow({self._socket.parent})
                changes.drain()
                await self._connect_once()
                await self._pause(changes)

    async def _pause(self, changes: Subscription) -> None:
        """Wait for the next attempt. It is due at once if the socket, or a directory above it, has changed: other files beside it,
        such as the agent's own ones, change all the time.
        """
        now = asyncio.get_running_loop().time
        until = now() + self._backoff.next()
        while paths := await changes.wait(until - now()):
            if any(self._socket.is_relative_to(path) for path in paths):
                self._backoff.reset()
                return

    async def _connect_once(self) -> None:
        # A runtime whose release does not determine whether it has validation may reject a plugin that subscribes to it: after
        # two rejections the third attempt does not.
        validates = self._rejections % _ATTEMPTS != _ATTEMPTS - 1
        session = Session(self._handler, self._index, self._host_devices, validates=validates)
        started = time.monotonic()
        try:
            if is_too_long(self._socket):
                raise SessionEnded(f"{self._socket} is too long for a socket; the limit is {MAX_PATH_BYTES} bytes")
            await session.run(self._socket)
        except SessionEnded as exc:
            self._rejections = self._rejections + 1 if session.is_rejected else 0
            if session.synchronized.is_set() and time.monotonic() - started > LONGEST_PAUSE_SECONDS:
                self._backoff.reset()
            self._report(str(exc), session.synchronized.is_set())

    def _report(self, reason: str, was_connected: bool) -> None:
        """Once for each reason, if the next attempt fails by it too: a socket exists before the runtime listens on it."""
        is_new, self._last_reason = reason != self._last_reason, reason
        if not was_connected and (is_new or reason == self._reported_reason):
            return
        self._reported_reason = reason
        log.warning("container runtime unreachable; retrying", extra={"socket": str(self._socket), "error": reason})
        metrics.RUNTIME_CONNECTED.set(0)
        self._handler.runtime_disconnected(reason)
