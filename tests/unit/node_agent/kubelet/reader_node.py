"""A node whose kubelet has given out two devices, its one reader, and what can be wrong with what is read."""

from collections.abc import Callable
from typing import Final

from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading, Subscriber

from tests.fakes.kubelet_answers import KubeletAnswers
from tests.unit.node_agent.devicemanager.scenario import GPU
from tests.unit.node_agent.dra.claimed import row
from tests.unit.node_agent.kubelet.subscribers import SUBSCRIBERS


class Node:
    """A kubelet that has given a GPU to pod one, and to the init container of pod two, and who knows of that.

    Pod one has another device by a claim.
    """

    def __init__(self, kubelet: KubeletAnswers) -> None:
        self.kubelet = kubelet
        self.pods: dict[str, Pod] = {}
        self.reader = kubelet.reader(self.pods)
        self.recorded = Recorder()
        # the last one
        self.subscriber: Subscriber = self.recorded
        self.reader.subscribe(self.recorded)
        kubelet.rows = (PodResourcesRow("default", "one", "c0", GPU, ("a",)),)
        kubelet.claim_rows = (row("one"),)
        kubelet.devices = {GPU: {"a": (0,), "b": (1,), "c": ()}}
        self.write()

    def write(self, *more: Allocation) -> None:
        held = (Allocation("one", "c0", GPU, {-1: ("a",)}, b""), Allocation("two", "i0", GPU, {-1: ("b",)}, b""))
        self.kubelet.write(*held, *more, registered={GPU: ("a", "b", "c")})

    def subscribe(self, name: str) -> Callable[[], object]:
        """Returns what shows all that it knows."""
        self.subscriber, known = SUBSCRIBERS[name](self.reader, self.pods)
        self.reader.subscribe(self.subscriber)
        return known

    def begin_without_subscribers(self) -> None:
        self.reader = self.kubelet.reader(self.pods)


class Recorder(Subscriber):
    """Follows everything."""

    pace = Pace(is_following=True, lists_devices=True)

    def __init__(self) -> None:
        self.is_outdated = True
        self.checkpoints: list[CheckpointReading] = []
        self.pods: list[PodReading] = []

    def checkpoint_read(self, found: CheckpointReading) -> None:
        self.checkpoints.append(found)
        self.is_outdated = True

    def pods_read(self, found: PodReading) -> None:
        self.pods.append(found)


def is_away(node: Node) -> None:
    node.kubelet.problem = "UNAVAILABLE: no route"


def lists_no_devices(node: Node) -> None:
    node.kubelet.devices_problem = "UNIMPLEMENTED: no such method"


def has_a_torn_file(node: Node) -> None:
    node.kubelet.write_text("{")


def has_an_empty_file(node: Node) -> None:
    node.kubelet.write_text("")


def has_a_directory_there(node: Node) -> None:
    node.kubelet.directory.checkpoint.unlink()
    node.kubelet.directory.checkpoint.mkdir()


def has_a_torn_file_and_lists_no_devices(node: Node) -> None:
    has_a_torn_file(node)
    lists_no_devices(node)


def is_away_with_a_torn_file(node: Node) -> None:
    has_a_torn_file(node)
    is_away(node)


BROKEN: Final = [
    is_away,
    lists_no_devices,
    has_a_torn_file,
    has_an_empty_file,
    has_a_directory_there,
    has_a_torn_file_and_lists_no_devices,
    is_away_with_a_torn_file,
]
