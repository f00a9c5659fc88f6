"""Limits the memory for the NodeDevices of one node, whose token can write objects of any size and number."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeVar

from nodedevice_api import names

from nodedevice_operator.objects.nodedevice import LONGEST_TEXT, NodeDeviceRecord

# An agent lists 256 KiB at most for each resource.
MOST_BYTES_OF_NODE: Final = 16 * 1024 * 1024
# An agent serves 256 names at most; as many may be left of others that it served before.
MOST_OF_NODE: Final = 512


class Weighed(Protocol):
    """A record with bounds: the memory of its lists (bytes), and a sort key, oldest first."""

    @property
    def weight(self) -> int: ...
    @property
    def age(self) -> tuple[str, str]: ...


W = TypeVar("W", bound=Weighed)


@dataclass(frozen=True, slots=True)
class Bounds(Generic[W]):
    """The bounds for one node. without_lists: returns the record without its lists."""

    without_lists: Callable[[W], W]
    most_bytes: int = MOST_BYTES_OF_NODE
    most_objects: int = MOST_OF_NODE

    def oldest(self, of_node: Iterable[W]) -> list[W]:
        return nsmallest(self.most_objects, of_node, key=_AGE)


class Newest:
    """Finds the newest of one node's records with lists without a walk over all. Kept once the lists exceed the limit."""

    def __init__(self, of_node: Iterable[Weighed]) -> None:
        self._ages = sorted(record.age for record in of_node if record.weight)

    def __len__(self) -> int:
        return len(self._ages)

    def add(self, age: tuple[str, str]) -> None:
        at = bisect_left(self._ages, age)
        if at == len(self._ages) or self._ages[at] != age:
            self._ages.insert(at, age)

    def pop(self) -> tuple[str, str]:
        """Its age. The record may be gone by now, be another, or have lost its lists."""
        return self._ages.pop()


_AGE: Final = attrgetter("age")


def without_lists(record: NodeDeviceRecord) -> NodeDeviceRecord:
    """Keeps numbers and conditions, as if the agent had omitted all lists."""
    return replace(
        record,
        devices={},
        listed=(),
        devices_omitted=record.total,
        allocations=(),
        allocations_omitted=record.allocations_omitted + len(record.allocations),
        waiting=(),
        lost_cordons=frozenset(),
        cordoned_ids=frozenset(),
        cordoned_by={},
        conditions={
            kind: replace(value, message=value.message[:LONGEST_TEXT]) if kind in names.AGENT_CONDITIONS else value
            for kind, value in record.conditions.items()
        },
        weight=0,
    )


NODE_DEVICE_BOUNDS: Final[Bounds[NodeDeviceRecord]] = Bounds(without_lists)
