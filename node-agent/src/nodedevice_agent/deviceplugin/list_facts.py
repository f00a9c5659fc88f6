"""Finds the parts of a device plugin's list that the device manager corrects or ignores, for authors of plugins."""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from nodedevice_api.device_ids import is_ordinary, shown_id
from nodedevice_common.text import shown

from nodedevice_agent.devicemanager.resources.devices import MAX_NUMA_NODE
from nodedevice_agent.deviceplugin import codec

# Documented by the API. The kubelet does not check it.
MAX_ID_CHARACTERS: Final = 63
_HEALTHS: Final = frozenset({codec.HEALTHY, "Unhealthy"})
_EXAMPLES: Final = 3
_EXAMPLE_CHARACTERS: Final = 40
_MOST_NODES: Final = 1024


class Odd(Struct):
    """Devices with one peculiarity: their number, and the first few of them as `ID` or `ID (detail)`."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, device_id: str, detail: str = "") -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            name = shown(shown_id(device_id), _EXAMPLE_CHARACTERS)
            self.examples.append(f"{name} ({shown(detail, _EXAMPLE_CHARACTERS)})" if detail else name)

    def __str__(self) -> str:
        more = f" and {self.count - len(self.examples)} more" if self.count > len(self.examples) else ""
        return f"{', '.join(self.examples)}{more}"


class ListFacts(Struct):
    """One ListAndWatchResponse. octets: its length. nodes: the number of devices by NUMA node, for a bounded number of nodes."""

    octets: int
    devices: int = 0
    healthy: int = 0
    long_ids: Odd = field(default_factory=Odd)
    unprintable_ids: Odd = field(default_factory=Odd)
    odd_health: Odd = field(default_factory=Odd)
    no_nodes: Odd = field(default_factory=Odd)
    invalid_nodes: Odd = field(default_factory=Odd)
    nodes: Mapping[int, int] = field(default_factory=dict)


def list_facts(octets: bytes) -> ListFacts:
    """Raises DecodeError. Takes as long as decoding the list: run it in a thread."""
    facts, nodes = ListFacts(len(octets)), Counter[int]()
    for device in codec.listed_devices(octets):
        facts.devices += 1
        facts.healthy += device.health == codec.HEALTHY
        if len(device.ID) > MAX_ID_CHARACTERS:
            facts.long_ids.add(device.ID, f"{len(device.ID)} characters")
        elif not is_ordinary(device.ID):
            facts.unprintable_ids.add(device.ID)
        if device.health not in _HEALTHS:
            facts.odd_health.add(device.ID, repr(device.health[:_EXAMPLE_CHARACTERS]))
        if not device.HasField("topology"):
            continue
        listed = [node.ID for node in device.topology.nodes[:_MOST_NODES]]
        if not listed:
            facts.no_nodes.add(device.ID)
        if invalid := [node for node in listed if not 0 <= node <= MAX_NUMA_NODE]:
            facts.invalid_nodes.add(device.ID, f"node {invalid[0]}")
        for node in listed:
            if node in nodes or len(nodes) < _MOST_NODES:
                nodes[node] += 1
    facts.nodes = dict(nodes)
    return facts
