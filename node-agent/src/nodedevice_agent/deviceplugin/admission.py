"""Accepts or rejects registrations. At the bound, a name with a place is not rejected: its own oldest connection is closed."""

import logging
from collections.abc import Callable, Collection, Iterator, MutableMapping
from contextlib import contextmanager

from msgspec import Struct
from nodedevice_common.paced_log import PacedLog

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.registration import check_connections, surplus_connection
from nodedevice_agent.deviceplugin.connection import PluginConnection

log = logging.getLogger(__name__)

_MOST_SHOWN = 16


class Admission(Struct, eq=False):
    """connections: open connections by endpoint. settle: called after each event of the manager."""

    manager: DeviceManager
    connections: MutableMapping[int, PluginConnection]
    settle: Callable[[], None]
    now: Callable[[], float]
    lines: PacedLog
    # path and resource name of connections that are being opened
    _opening: list[tuple[str, str]] = []

    @contextmanager
    def opening(self, resource_name: str, socket: str) -> Iterator[None]:
        """Reserve a connection while the plugin is dialled. Raises RegistrationRejected."""
        self.manager.places.find(resource_name, self.now())
        opened = [(str(other.socket), other.resource_name) for other in self.connections.values()]
        check_connections(opened, self._opening, socket, resource_name, self.manager.resources)
        self._opening.append((socket, resource_name))
        try:
            yield
        finally:
            self._opening.remove((socket, resource_name))

    def take(self, resource_name: str) -> list[PluginConnection]:
        """Give the name its place after its plugin has responded. Returns connections to close. Raises RegistrationRejected."""
        # the place that was free before the dialling may be taken now
        loser = self.manager.places.find(resource_name, self.now())
        closing = []
        if loser:
            self.manager.places.exchanged(loser, resource_name, self.now())
            event = "resource name has lost its place on this node to another one"
            self.lines.log(logging.WARNING, event, loser, resource_name=loser, taken_by=resource_name)
            closing = self._displace([loser], resource_name)
        oldest = surplus_connection(
            {endpoint: one.resource_name for endpoint, one in self.connections.items()}, resource_name
        )
        return closing if oldest is None else [*closing, self.connections[oldest]]

    def bound_names(self) -> list[PluginConnection]:
        """Apply the bound on names, once all pods are known. Returns connections to close."""
        self.manager.places.are_pods_known = True
        beyond = self.manager.places.beyond()
        if beyond:
            extra = {"resource_names": beyond[:_MOST_SHOWN], "count": len(beyond)}
            log.warning("this node has too many resource names; unused ones lose their place", extra=extra)
        return self._displace(beyond, "") if beyond else []

    def _displace(self, resource_names: Collection[str], by: str) -> list[PluginConnection]:
        """End these names: their connections bring no more events."""
        closing = [endpoint for endpoint, one in self.connections.items() if one.resource_name in resource_names]
        self.manager.table.displaced([name for name in resource_names if name in self.manager.resources], by)
        self.settle()
        self.manager.places.displace_others(resource_names, by)
        return [self.connections.pop(endpoint) for endpoint in closing]
