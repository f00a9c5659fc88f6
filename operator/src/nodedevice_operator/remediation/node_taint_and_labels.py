"""What a Node should have besides capacity, where an administrator switched it on: a taint while devices are unhealthy, and labels
that summarize its resources. Nothing else of a Node is ever changed, not even other labels with our prefix.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

from nodedevice_operator.objects.node import HEALTHY, LABEL_PREFIX, TOTAL, TaintAndLabels
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

# A label's name may have 63 characters; the longest of our endings has 8.
_LONGEST_SLUG: Final = 55


def desired_labels(records: Iterable[NodeDeviceRecord], *, taint: bool, labels: bool) -> TaintAndLabels:
    """Taint and labels of a Node with these NodeDevices. taint, labels: whether each is switched on; if not, it is removed."""
    found = [record for record in records if record.has_status and not record.is_only_shown]
    numbers = {
        f"{LABEL_PREFIX}{_slug(record.resource)}{ending}": str(number)
        for record in found
        for ending, number in ((TOTAL, record.total), (HEALTHY, record.healthy))
    }
    # also by number: the list of a plugin that is not connected, or one that is too long, omits unhealthy devices
    is_tainted = any(record.unhealthy() or record.unlisted_unhealthy for record in found)
    return TaintAndLabels(taint and is_tainted, numbers if labels else {})


def label_changes(seen: TaintAndLabels, desired: TaintAndLabels) -> dict[str, str | None]:
    """Labels to set, and those to remove (None)."""
    gone: dict[str, str | None] = {key: None for key in seen.labels if key not in desired.labels}
    return gone | {key: value for key, value in desired.labels.items() if seen.labels.get(key) != value}


def _slug(resource: str) -> str:
    """`vendor.com/gpu` as part of a label's name; with a hash if it had to be cut, so that labels stay distinct."""
    plain = resource.replace("/", ".")
    if len(plain) <= _LONGEST_SLUG:
        return plain
    digest = hashlib.sha256(resource.encode()).hexdigest()[:8]
    return f"{plain[: _LONGEST_SLUG - 9].rstrip('-_.')}-{digest}"
