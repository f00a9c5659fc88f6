"""Parts of devices: the rules that a device plugin gives for them, in addition to v1beta1. Pure.

A part is a share of a physical device, its parent, such as a unit of a GPU's memory. Its ID is the parent's with a number:
`GPU-1f2e::0`, `GPU-1f2e::1`, as NVIDIA's plugin has them, and monitors take what stands before `::`. Other plugins may write
`GPU-1f2e-0`, as this one did. Parts of one parent are interchangeable.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from msgspec import Struct

# No part number is higher than the number of devices that a node may list.
MAX_PART_DIGITS: Final = 6
_NUMBER = rf"[0-9]{{1,{MAX_PART_DIGITS}}}"
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")
SEPARATOR: Final = "::"
OLD_SEPARATOR: Final = "-"
_PART_ID = re.compile(
    rf"(?P<parent>.+)(?P<separator>::|-)(?P<number>0|[1-9][0-9]{{0,{MAX_PART_DIGITS - 1}}})", re.DOTALL
)


class Placement(StrEnum):
    """Placement of one container's parts: on any parents, all on the same one, or each on another one."""

    ANY = "Any"
    SAME_PARENT = "SameParent"
    DISTINCT_PARENTS = "DistinctParents"


class Choice(StrEnum):
    """Which parent comes first: the one with the fewest parts free that still fits, or the one with the most."""

    BINPACK = "BinPack"
    SPREAD = "Spread"


class PodPlacement(StrEnum):
    """Placement of one pod's containers: no rule, on one parent if possible, or on different parents if possible."""

    ANY = "Any"
    TOGETHER = "Together"
    APART = "Apart"


class Advertise(StrEnum):
    """What the Node's capacity counts besides allocated parts: all available parts, or only those of one parent."""

    SUM = "Sum"
    LARGEST = "Largest"


class PartRules(Struct, frozen=True):
    """sm_percent: of a parent's multiprocessors, for each part of a container whose pod has no annotation for it; 0: no limit.

    None where containers are not limited, and the annotation has no effect.
    """

    placement: Placement = Placement.ANY
    choice: Choice = Choice.BINPACK
    containers: PodPlacement = PodPlacement.ANY
    advertise: Advertise = Advertise.SUM
    sm_percent: int | None = None


def part_id(parent: str, number: int, separator: str = SEPARATOR) -> str:
    return f"{parent}{separator}{number}"


def separator_of(device_id: str) -> str:
    """What stands between parent and number; empty for an ID of another form."""
    match = _PART_ID.fullmatch(device_id)
    return "" if match is None else match["separator"]


def parent_and_number(device_id: str) -> tuple[str, int] | None:
    """The parent's ID and the part's number; None for an ID of another form."""
    match = _PART_ID.fullmatch(device_id)
    return None if match is None else (match["parent"], int(match["number"]))


def numbers_of(ranges: str, at_most: int) -> list[int]:
    """The numbers of ascending ranges such as `0-15,40`. Raises ValueError for others, and for more than `at_most` numbers."""
    found: list[int] = []
    for first, last in _ranges(ranges):
        if len(found) + last - first >= at_most:
            raise ValueError(f"more than {at_most} parts")
        found += range(first, last + 1)
    return found


def _ranges(text: str) -> Iterator[tuple[int, int]]:
    before = -1
    for one in text.split(","):
        match = _RANGE.fullmatch(one)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not before < first <= last:
            raise ValueError(f"numbers {text[:40]!a} are not ascending ranges such as 0-15,40")
        yield first, last
        before = last
