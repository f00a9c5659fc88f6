"""The agent's observation of DRA: offered devices from slices, and their holders from the kubelet and claims."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from nodedevice_agent.devicemanager.resources.resource import Resource
from nodedevice_agent.dra.claim import read_claim
from nodedevice_agent.dra.claims import ClaimReader
from nodedevice_agent.dra.holders import Holders
from nodedevice_agent.dra.observer import DriverObserver, known_names
from nodedevice_agent.dra.served import PoolHolders, ServedByDrivers
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
        """For the arguments see observer()."""
        self.claims = ClaimReader(partial(read_claim, watches.cluster))
        self.holders = Holders(self.claims, reader.wake)
        reader.subscribe(self.holders)
        self.slices = observer(watches, node_name, self.holders, publish, others, file)
        self.served = self.slices.served
        self.holders.on_known, self.holders.on_changed = self.slices.held_known, self.slices.held_changed


def observer(
    watches: Watches,
    node_name: str,
    held: PoolHolders | None,
    publish: Callable[[str], None],
    others: Sequence[Mapping[str, Resource]],
    file: Path,
) -> DriverObserver:
    """publish: called with each resource that may have changed. others: the resources of all other allocators on this node.

    held: None if observeDra is false: then the NodeDevices of pools in the file end.
    """
    is_off, known = held is None, known_names(file)
    served = ServedByDrivers(
        node_name, held or PoolHolders(), lambda name: is_taken(name, others), known, is_off=is_off
    )
    return DriverObserver(watches, node_name, served, publish, file)
