"""Records of NodeDevices in parts, as tests of the operator need them."""

from dataclasses import replace
from typing import Any

from nodedevice_operator.objects.nodedevice import AllocationRecord


def held(*device_ids: str, pod: str = "pod-a", uid: str = "", **more: Any) -> AllocationRecord:
    """What a container of that pod holds. uid: of the pod, uid-… without one; `more` as in the record."""
    record = AllocationRecord("default", pod, uid or f"uid-{pod}", "main", device_ids, 0, is_releasing=False)
    return replace(record, **more)
