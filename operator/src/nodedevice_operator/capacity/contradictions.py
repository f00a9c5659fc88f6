"""Where a NodeDevice's numbers say something else than its own lists: what is believed then, and what is told.

The API refuses what it can count (see crds/); this is the rest. Lists that are cut say nothing about what is left out. What pods
hold is never believed to be less than the number says: capacity must not fall under what is in use.
"""

from collections.abc import Iterator
from typing import Final

from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

_MOST_TOLD: Final = 3


def believed_available(record: NodeDeviceRecord) -> int:
    """How many free devices there are, as far as the number and the list of devices agree."""
    free = _listed_free(record)
    return record.available if free is None else min(record.available, free)


def contradictions(record: NodeDeviceRecord) -> tuple[str, ...]:
    """What does not fit together, a few sentences; () where all does."""
    return tuple(sentence for sentence, _ in zip(_all(record), range(_MOST_TOLD), strict=False))


def _all(record: NodeDeviceRecord) -> Iterator[str]:
    free = _listed_free(record)
    if free is not None and record.available > free:
        yield f"available is {record.available}, but {free} of the devices listed are healthy and held by nobody"
    held = {i for allocation in record.allocations if not allocation.is_releasing for i in allocation.device_ids}
    is_whole = not record.allocations_omitted and not any(allocation.omitted for allocation in record.allocations)
    if record.listed and is_whole and record.allocated > len(held):
        yield f"allocated is {record.allocated}, but {len(held)} devices are listed as held"
    if record.listed and not record.devices_omitted:
        for device_id in sorted(held - frozenset(record.listed)):
            yield f"{device_id} is held, but is not among the devices"
    holders: dict[str, str] = {}
    for allocation in record.allocations:
        for device_id in allocation.device_ids:
            if holders.setdefault(device_id, allocation.pod_uid) != allocation.pod_uid:
                yield f"{device_id} is held by two pods, {holders[device_id]} and {allocation.pod_uid}"


def _listed_free(record: NodeDeviceRecord) -> int | None:
    """How many listed devices are healthy and held by nobody; None where the list is not whole."""
    if not record.listed or record.devices_omitted:
        return None
    # the others are those that are held or broken
    return len(record.listed) - len(record.devices)
