"""Pools that were shown before observeDra was set to false: their NodeDevices end."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.dra.observer import DriverObserver, known_names
from nodedevice_agent.dra.served import Held, ServedByDrivers
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.served_resources import is_taken


class FormerPools:
    """Pools without slices and holders. slices.run() keeps the file of their names, which is empty in the end."""

    def __init__(
        self,
        watches: Watches,
        node_name: str,
        publish: Callable[[str], None],
        others: Sequence[Mapping[str, Resource]],
        file: Path,
    ) -> None:
        """publish: called with each resource that may have changed. others: the resources of all who give devices out here."""
        known = known_names(file)
        self.served = ServedByDrivers(node_name, _Nobody(), lambda name: is_taken(name, others), known, is_off=True)
        self.slices = DriverObserver(watches, node_name, self.served, publish, file)


class _Nobody(Held):
    """Has anything, as far as anybody asks."""
