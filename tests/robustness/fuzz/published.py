"""What the agent would publish of a resource, whatever came in."""

from msgspec import to_builtins
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.kube.status import node_device_status
from nodedevice_api.nodedevice import NodeDeviceStatus

from tests.robustness.fuzz.inputs import as_json


def status_of(manager: DeviceManager, resource_name: str, before: NodeDeviceStatus | None = None) -> NodeDeviceStatus:
    """It can be written as JSON."""
    seen, now = snapshot(manager, resource_name), "2026-01-01T00:00:00Z"
    status = node_device_status(seen, before or NodeDeviceStatus(), wall_time=now, version="1", delivery="none")
    as_json(to_builtins(status))
    return status
