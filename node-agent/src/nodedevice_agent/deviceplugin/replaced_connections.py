"""Closes older connections of a plugin that has registered again from the same socket, at a limited rate."""

from collections.abc import Callable, Mapping
from pathlib import Path

from nodedevice_agent.deviceplugin.connection import PluginConnection

# Longer than a plugin needs to notice that a stream has ended and to register, its first pauses between attempts included.
_REPLACED_SECONDS = 10.0
_MAX_KEPT = 8


class ReplacedConnections:
    """connections: open connections by endpoint; a newer one has a higher number."""

    def __init__(self, connections: Mapping[int, PluginConnection], now: Callable[[], float]) -> None:
        self._connections = connections
        self._now = now
        # by registered path: the time of the last replacement of a connection
        self._replaced_at: dict[Path, float] = {}

    async def close_older(self, endpoint: int, newest: PluginConnection) -> None:
        """Close all connections of a plugin over one socket but the newest, which lists devices.

        Some plugins take the end of any stream for the end of the device manager, and would register forever. They keep theirs.
        """
        earliest = self._now() - _REPLACED_SECONDS
        self._replaced_at = {path: at for path, at in self._replaced_at.items() if at > earliest}
        older = [
            connection
            for other, connection in self._connections.items()
            if other < endpoint
            and (connection.socket, connection.resource_name) == (newest.socket, newest.resource_name)
        ]
        # a plugin that registers again and again by itself must not use up this process's file descriptors
        if newest.socket in self._replaced_at and len(older) < _MAX_KEPT:
            return
        for connection in older:
            self._replaced_at[newest.socket] = self._now()
            await connection.aclose()
