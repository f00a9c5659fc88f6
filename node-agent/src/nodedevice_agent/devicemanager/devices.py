"""Devices as a plugin lists them, and which of them can be taken at all.

Source: kubelet deviceplugin v1beta1, ListAndWatch. The kubelet takes any bytes as an ID and counts an ID that is listed
twice with different health in both sets; here an ID is counted once, and what cannot be an ID is refused and said.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# The CRD's bound; the device plugin API documents 63 and nobody ever checked it.
MAX_ID_CHARACTERS = 128
MAX_NUMA_NODES = 64
# What the CRD can hold; a real machine has a few dozen.
MAX_NUMA_NODE = 2**31 - 1
# Of one list: as many as 32 NodeDevices could name, or one for each MiB of 128 GiB. More of them would hold up all that the
# agent has to answer in time, the container runtime within two seconds among them, and cost some 100 MiB.
MAX_DEVICES = 32 * 4096
_EXAMPLES_NAMED = 3
_EXAMPLE_CHARACTERS = 40


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
class ListedDevices:
    """A complete list: accepted devices by ID, and a sentence about what was refused (empty when nothing was).

    trouble: what the plugin says is wrong with the whole.
    ids: all of them, sorted; healthy_ids and unhealthy_ids: as the plugin calls them, sorted. Worked out once, where the list
    is read: every pod and every publication asks, and must not look at each of a hundred thousand devices.
    """

    devices: Mapping[str, Device]
    refusal: str = ""
    trouble: str = ""
    ids: tuple[str, ...] = field(init=False, repr=False, compare=False)
    healthy_ids: tuple[str, ...] = field(init=False, repr=False, compare=False)
    unhealthy_ids: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ids = tuple(sorted(self.devices))
        unhealthy = tuple([i for i in ids if not self.devices[i].healthy])
        healthy = tuple([i for i in ids if self.devices[i].healthy]) if unhealthy else ids
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "healthy_ids", healthy)
        object.__setattr__(self, "unhealthy_ids", unhealthy)

    def is_listed_healthy(self, device_id: str) -> bool:
        """Whether it is listed, and as healthy."""
        device = self.devices.get(device_id)
        return device is not None and device.healthy


NO_DEVICES = ListedDevices({})


class _Odd:
    """IDs that something is said of: how many, and the first few of them, whatever their number and length."""

    def __init__(self) -> None:
        self.count = 0
        self._examples: list[str] = []

    def add(self, device_id: str) -> None:
        self.count += 1
        shown = device_id[:_EXAMPLE_CHARACTERS]
        # one more than is named shows that there are more
        if len(self._examples) <= _EXAMPLES_NAMED and shown not in self._examples:
            self._examples.append(shown)

    def __str__(self) -> str:
        # ascii() also makes line breaks and control characters harmless in logs and conditions
        named = ", ".join(map(ascii, self._examples[:_EXAMPLES_NAMED]))
        return named + (", …" if len(self._examples) > _EXAMPLES_NAMED else "")


def accept(listed: Iterable[Device], trouble: str = "", known: ListedDevices = NO_DEVICES) -> ListedDevices:
    """Take what a plugin listed: each ID once (unhealthy wins over healthy), impossible IDs left out and told of.

    The first MAX_DEVICES are looked at; that there are more is told, how many is not, for nobody counts them.
    known: the list before it. What is equal is taken from there, the whole list or single devices: the two are then compared
    by identity, in next to no time.
    """
    devices: dict[str, Device] = {}
    twice, impossible = _Odd(), _Odd()
    is_too_long = False
    for number, device in enumerate(listed):
        if number == MAX_DEVICES:
            is_too_long = True
            break
        if not is_possible_id(device.id):
            impossible.add(device.id)
            continue
        earlier = devices.get(device.id)
        if earlier is not None:
            twice.add(device.id)
            if not earlier.healthy:
                continue
        same = known.devices.get(device.id)
        devices[device.id] = same if same is not None and same == device else device
    found = ListedDevices(devices, _refusal(twice, impossible, is_too_long=is_too_long), trouble)
    return known if found == known else found


def is_possible_id(device_id: str) -> bool:
    return 0 < len(device_id) <= MAX_ID_CHARACTERS and device_id.isprintable()


def _refusal(twice: _Odd, impossible: _Odd, *, is_too_long: bool) -> str:
    parts = []
    if is_too_long:
        parts.append(f"more than {MAX_DEVICES} are listed and the rest is left out: list fewer, coarser devices")
    if twice.count:
        parts.append(f"{twice.count} listed more than once and counted once ({twice})")
    if impossible.count:
        parts.append(
            f"{impossible.count} refused ({impossible}): an ID has 1 to {MAX_ID_CHARACTERS} printable characters"
        )
    return "the plugin's device IDs need mending: " + "; ".join(parts) if parts else ""
