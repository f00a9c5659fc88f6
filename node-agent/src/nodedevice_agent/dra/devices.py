"""Records of a DRA driver's ResourceSlices on this node, each of bounded size. Pure."""

from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Final

from msgspec import Struct
from nodedevice_api.nodedevice import DeviceTaint

NO_ATTRIBUTES: Final[Mapping[str, str]] = {}

# counter set, counter, and how much of it
Counters = tuple[tuple[str, str, Decimal], ...]
# driver and name of a pool
PoolKey = tuple[str, str]


class Device(Struct, frozen=True, gc=False):
    """attributes: by their name in the slice, including capacities. consumes: counters that it shares with devices of its pool."""

    name: str
    attributes: Mapping[str, str] = NO_ATTRIBUTES
    taints: tuple[DeviceTaint, ...] = ()
    numa_nodes: tuple[int, ...] = ()
    consumes: Counters = ()


class Slice(Struct, frozen=True, dict=True):
    """count: the number of slices of its pool in that generation. counters: shared by devices of the pool, with their amounts.

    omitted: the number of devices beyond the limit of a slice. problem: why its devices are unknown; else "".
    has_attributes: whether the attributes of its devices were kept.
    """

    name: str
    driver: str
    pool: str
    generation: int
    count: int
    devices: tuple[Device, ...] = ()
    counters: Counters = ()
    omitted: int = 0
    problem: str = ""
    has_attributes: bool = True

    @property
    def key(self) -> PoolKey:
        return self.driver, self.pool

    @cached_property
    def counted(self) -> int:
        """The number of counters that it has or its devices consume."""
        return len(self.counters) + sum(len(device.consumes) for device in self.devices)

    @cached_property
    def attribute_count(self) -> int:
        """The number of attributes of all its devices."""
        return sum(len(device.attributes) for device in self.devices)
