"""Parts of devices in a status: which parts of each physical device a container holds, as ranges of their numbers.

The parent GPU-1f2e with the numbers 0-15,40 and the separator :: stands for GPU-1f2e::0 to GPU-1f2e::15, and GPU-1f2e::40; the
separator - is that of earlier releases, which wrote none.
"""

from collections.abc import Iterable
from itertools import groupby

from nodedevice_api.nodedevice import HeldParts
from nodedevice_api.parts import OLD_SEPARATOR, SEPARATOR, numbers_of, parent_and_number, part_id, separator_of

# The CRD's bounds.
MAX_PARENTS = 64
MAX_NUMBERS_CHARACTERS = 2048


def by_parent(device_ids: Iterable[str]) -> tuple[list[HeldParts], list[str], int]:
    """Returns entries sorted by parent, the IDs of whole devices, and the number of parts beyond the bounds."""
    numbers: dict[tuple[str, str], list[int]] = {}
    others = []
    for device_id in device_ids:
        found = parent_and_number(device_id)
        if found is None:
            others.append(device_id)
        else:
            numbers.setdefault((found[0], separator_of(device_id)), []).append(found[1])
    entries = [_entry(*kind, sorted(numbers[kind])) for kind in sorted(numbers)[:MAX_PARENTS]]
    omitted = sum(map(len, numbers.values())) - sum(entry.parts for entry in entries)
    return entries, others, omitted


def part_ids(entries: Iterable[HeldParts], at_most: int) -> list[str]:
    """The parts of such entries. Raises ValueError for an invalid one, or for more than `at_most` parts."""
    found = []
    for entry in entries:
        numbers = numbers_of(entry.numbers, at_most)
        if len(numbers) != entry.parts:
            raise ValueError(f"{entry.parent}: {entry.parts} parts, but {len(numbers)} numbers")
        if entry.sep not in (SEPARATOR, OLD_SEPARATOR):
            raise ValueError(f"{entry.parent}: {entry.sep[:40]!a} is not a separator")
        found += [part_id(entry.parent, number, entry.sep) for number in numbers]
        if len(found) > at_most:
            raise ValueError(f"more than {at_most} parts")
    return found


def _entry(parent: str, separator: str, numbers: list[int]) -> HeldParts:
    text, count = "", 0
    # the numbers of one range grow as fast as their positions
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in group]
        one = str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"
        longer = f"{text},{one}" if text else one
        if len(longer) > MAX_NUMBERS_CHARACTERS:
            break
        text, count = longer, count + len(members)
    return HeldParts(parent, count, text, separator)
