"""Keeps the connection to the container runtime for ever: whatever ends it, it is said once and made anew.

The runtime's socket is watched, so that a runtime which comes back is met at once. Never decides anything about containers.
"""

import logging
import time
from pathlib import Path
from typing import NoReturn

from nodedevice_common.backoff import Backoff

from nodedevice_agent.devicemanager.runtime import RuntimeHandler
from nodedevice_agent.lib.file_watcher import FileWatcher
from nodedevice_agent.lib.unix_sockets import MAX_PATH_BYTES, is_too_long
from nodedevice_agent.nri.dialling import SessionEnded
from nodedevice_agent.nri.host_looks import HostLooks
from nodedevice_agent.nri.session import Session

log = logging.getLogger(__name__)

DEFAULT_SOCKET = Path("/var/run/nri/nri.sock")
# In the middle of the runtime's plugins: after those that prepare a container, before those that look at the result.
DEFAULT_INDEX = "10"
# One agent and one runtime on one node: nobody else is crowded out, and while they are apart no pod with a device starts.
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
_TRIES = 3


class NriPlugin:
    """index: two digits, the place among the runtime's plugins. Use run() in the event loop."""

    def __init__(self, handler: RuntimeHandler, socket: Path = DEFAULT_SOCKET, index: str = DEFAULT_INDEX) -> None:
        self._handler = handler
        self._socket = socket
        self._index = index
        self._looks = HostLooks()
        self._times_sent_away = 0
        self._last = self._told = ""
        self._pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        with FileWatcher() as watcher:
            changes = watcher.subscribe()
            while True:
                changes.follow({self._socket.parent})
                changes.drain()
                await self._once()
                if await changes.wait(self._pauses.next()):
                    self._pauses.reset()

    async def _once(self) -> None:
        """One connection, from dialling to its end."""
        # where the release does not tell whether it can be asked for validation: one that sends us away for it, twice, is not
        validates = self._times_sent_away % _TRIES != _TRIES - 1
        session = Session(self._handler, self._index, self._looks, validates=validates)
        started = time.monotonic()
        try:
            if is_too_long(self._socket):
                raise SessionEnded(f"{self._socket} is too long for a socket; {MAX_PATH_BYTES} bytes are the most")
            await session.run(self._socket)
        except SessionEnded as exc:
            self._times_sent_away = self._times_sent_away + 1 if session.is_sent_away else 0
            if session.is_synchronized and time.monotonic() - started > LONGEST_PAUSE_SECONDS:
                self._pauses.reset()
            self._tell(str(exc), session.is_synchronized)

    def _tell(self, reason: str, was_connected: bool) -> None:
        """Once, however often the same is tried again; and not at all what has passed a moment later, as between a socket's
        coming into being and its being listened on.
        """
        is_new, self._last = reason != self._last, reason
        if not was_connected and (is_new or reason == self._told):
            return
        self._told = reason
        log.warning("no container runtime; trying again", extra={"socket": str(self._socket), "reason": reason})
        self._handler.runtime_disconnected(reason)
