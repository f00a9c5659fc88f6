"""Devices as a plugin lists them, and which of them can be taken at all.

Source: kubelet deviceplugin v1beta1, ListAndWatch. The kubelet takes any bytes as an ID and counts an ID that is listed
twice with different health in both sets; here an ID is counted once, and what cannot be an ID is refused and said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# The CRD's bound; the device plugin API documents 63 and nobody ever checked it.
MAX_ID_CHARACTERS = 128
MAX_NUMA_NODES = 64
_EXAMPLES_NAMED = 3


@dataclass(frozen=True, slots=True)
class Device:
    """One device of one resource. numa_nodes: sorted, empty when the plugin says nothing of topology.

    reason, message and attributes (sorted by name): what only some plugins tell, why it is not healthy and what else it is.
    """

    id: str
    healthy: bool = True
    numa_nodes: tuple[int, ...] = ()
    reason: str = ""
    message: str = ""
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceList:
    """A complete list: accepted devices by ID, and a sentence about what was refused (empty when nothing was).

    trouble: what the plugin says is wrong with the whole.
    healthy_ids: those the plugin calls healthy, sorted; worked out once, for every pod asks.
    """

    devices: Mapping[str, Device]
    refusal: str = ""
    trouble: str = ""
    healthy_ids: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        healthy = sorted(device_id for device_id, device in self.devices.items() if device.healthy)
        object.__setattr__(self, "healthy_ids", tuple(healthy))


def accept(listed: Iterable[Device], trouble: str = "") -> DeviceList:
    """Take what a plugin listed: each ID once (unhealthy wins over healthy), impossible IDs left out and told of."""
    devices: dict[str, Device] = {}
    twice: list[str] = []
    impossible: list[str] = []
    for device in listed:
        if not _is_possible(device.id):
            impossible.append(device.id)
            continue
        earlier = devices.get(device.id)
        if earlier is not None:
            twice.append(device.id)
            if not earlier.healthy:
                continue
        devices[device.id] = device
    return DeviceList(devices, _refusal(twice, impossible), trouble)


def _is_possible(device_id: str) -> bool:
    return 0 < len(device_id) <= MAX_ID_CHARACTERS and device_id.isprintable()


def _refusal(twice: list[str], impossible: list[str]) -> str:
    parts = []
    if twice:
        parts.append(f"{len(twice)} listed more than once and counted once ({_examples(twice)})")
    if impossible:
        parts.append(
            f"{len(impossible)} refused ({_examples(impossible)}): an ID has 1 to {MAX_ID_CHARACTERS} printable characters"
        )
    return "the plugin's device IDs need mending: " + "; ".join(parts) if parts else ""


def _examples(ids: list[str]) -> str:
    shown = sorted(set(ids))[:_EXAMPLES_NAMED]
    # ascii() also makes line breaks and control characters harmless in logs and conditions
    return ", ".join(ascii(name[:40]) for name in shown) + (", …" if len(set(ids)) > len(shown) else "")
