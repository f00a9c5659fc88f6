"""The agent's observation of DRA: offered devices from slices, and their holders from the kubelet and claims."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.dra.claim import read_claim
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.dra.observer import DriverObserver, known_names
from nodedevice_agent.dra.served import ServedByDrivers
from nodedevice_agent.kube.informer import Watches
from nodedevice_agent.kube.served_resources import is_taken
from nodedevice_agent.kubelet.reader import KubeletReader


class Observation:
    """The parts, connected: holders gets the kubelet's readings and the node's pods; slices and claims are run by tasks."""

    def __init__(
        self,
        watches: Watches,
        node_name: str,
        reader: KubeletReader,
        publish: Callable[[str], None],
        others: Sequence[Mapping[str, Resource]],
        file: Path,
    ) -> None:
        """publish: called with each resource that may have changed. others: the resources of all who give devices out here."""
        self.claims = ClaimReader(partial(read_claim, watches.cluster))
        self.holders = Holders(self.claims, reader.wake)
        reader.subscribe(self.holders)
        self.served = ServedByDrivers(node_name, self.holders, lambda name: is_taken(name, others), known_names(file))
        self.slices = DriverObserver(watches, node_name, self.served, publish, file)
        self.holders.on_known, self.holders.on_changed = self.slices.held_known, self.slices.held_changed
