"""Which registrations are taken: a place for the resource name, and a bound on connections.

A name that has its place is never refused for what others have open: where there are too many connections, its own oldest one goes.
"""

import logging
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager

from nodedevice_common.paced_log import PacedLog

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.registration import check_connections, surplus_connection
from nodedevice_agent.deviceplugin.connection import PluginConnection

log = logging.getLogger(__name__)

# of resource names, in a log line
_MOST_SHOWN = 16


class Admission:
    """connections: the open ones, by endpoint. settle: called after each event of the manager."""

    def __init__(
        self,
        manager: DeviceManager,
        connections: MutableMapping[int, PluginConnection],
        settle: Callable[[], None],
        now: Callable[[], float],
        lines: PacedLog,
    ) -> None:
        self._lines = lines
        self._manager = manager
        self._connections = connections
        self._settle = settle
        self._now = now
        # being opened: path and resource name
        self._opening: list[tuple[str, str]] = []

    @contextmanager
    def opening(self, resource_name: str, socket: str) -> Iterator[None]:
        """While the plugin is dialled. Raises RegistrationRejected."""
        self._manager.places.find(resource_name, self._now())
        open_now = [(str(other.socket), other.resource_name) for other in self._connections.values()]
        check_connections(open_now, self._opening, socket, resource_name, self._manager.resources)
        self._opening.append((socket, resource_name))
        try:
            yield
        finally:
            self._opening.remove((socket, resource_name))

    def take(self, resource_name: str) -> list[PluginConnection]:
        """The place of the name, now that its plugin has answered. Raises RegistrationRejected.

        Returns connections that have to be closed: of the name that has lost its place, or an old one of the same name.
        """
        # what was found before the plugin was dialled may be another's by now
        loser = self._manager.places.find(resource_name, self._now())
        closing = []
        if loser:
            self._manager.places.exchanged(loser, resource_name, self._now())
            event = "resource name has lost its place on this node to another one"
            self._lines.log(logging.WARNING, event, loser, resource_name=loser, taken_by=resource_name)
            closing = self._displace([loser], resource_name)
        oldest = surplus_connection(
            {endpoint: one.resource_name for endpoint, one in self._connections.items()}, resource_name
        )
        return closing if oldest is None else [*closing, self._connections[oldest]]

    def bound_names(self) -> list[PluginConnection]:
        """All pods are known: where there are more names than a node may have, some go. Returns connections to be closed."""
        self._manager.places.are_pods_known = True
        beyond = self._manager.places.beyond()
        if beyond:
            extra = {"resource_names": beyond[:_MOST_SHOWN], "count": len(beyond)}
            log.warning("this node has too many resource names; those that nobody needs are given up", extra=extra)
        return self._displace(beyond, "") if beyond else []

    def _displace(self, resource_names: Collection[str], by: str) -> list[PluginConnection]:
        """Their connections bring no more events."""
        closing = [endpoint for endpoint, one in self._connections.items() if one.resource_name in resource_names]
        own = [name for name in resource_names if name in self._manager.resources]
        self._manager.table.displaced(own, by)
        self._settle()
        self._manager.places.displace_others(resource_names, by)
        return [self._connections.pop(endpoint) for endpoint in closing]
