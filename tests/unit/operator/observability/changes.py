"""NodeDevices before and after a change, and what is reported of it."""

from typing import Any

from nodedevice_api.nodedevice import Waiting
from nodedevice_operator.objects.nodedevice import DeviceRecord, NodeDeviceRecord
from nodedevice_operator.observability.transitions import transitions

from tests.fakes.operator.collaborators import REASONS
from tests.fakes.operator.operator_model import node_device, waits

IDS = tuple(f"gpu-{number}" for number in range(8))


def record(broken: int = 0, listed: tuple[str, ...] = IDS, **fields: Any) -> NodeDeviceRecord:
    devices = {device_id: DeviceRecord("Unhealthy", "Xid", False, ()) for device_id in IDS[:broken]}
    return node_device(devices=devices, listed=listed, **fields)


def waiting(reason: str, message: str = "", container: str = "main") -> Waiting:
    return waits("uid-a", container, reason, "default", "pod-a", message)


def reported(old: NodeDeviceRecord | None, new: NodeDeviceRecord) -> list[tuple[str, str]]:
    events = transitions(old, new)
    assert {event.reason for event in events} <= REASONS, "not in docs/troubleshooting.md"
    assert {event.type for event in events} <= {"Normal", "Warning"}
    return [(event.reason, event.message) for event in events]
