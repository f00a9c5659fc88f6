"""What a Node may carry besides capacity, where an administrator switched it on: a taint while devices are broken, and labels that
sum its resources up. Nothing else of a Node is ever touched, an administrator's own labels with our prefix neither.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from nodedevice_operator.objects.node import HEALTHY, LABEL_PREFIX, TOTAL, Marks
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# A label's name may have 63 characters; the longest of our endings has 8.
_LONGEST_SLUG: Final = 55


def wanted(records: Iterable[NodeDeviceRecord], *, taint: bool, labels: bool) -> Marks:
    """Marks of a Node with these NodeDevices. taint, labels: what is switched on; the rest is to go."""
    found = [record for record in records if record.has_status]
    numbers = {
        f"{LABEL_PREFIX}{_slug(record.resource)}{ending}": str(number)
        for record in found
        for ending, number in ((TOTAL, record.total), (HEALTHY, record.healthy))
    }
    return Marks(taint and any(record.unhealthy() for record in found), numbers if labels else {})


def label_changes(seen: Marks, want: Marks) -> dict[str, str | None]:
    """Labels to set, and those to take away (None)."""
    gone: dict[str, str | None] = {key: None for key in seen.labels if key not in want.labels}
    return gone | {key: value for key, value in want.labels.items() if seen.labels.get(key) != value}


def _slug(resource: str) -> str:
    """`vendor.com/gpu` as part of a label's name; a hash tells apart what had to be cut."""
    plain = resource.replace("/", ".")
    if len(plain) <= _LONGEST_SLUG:
        return plain
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_SLUG - 9].rstrip('-_.')}-{digest}"
