"""Whether the stored response of a built-in plugin is still right for the devices that it was given for. Pure.

A response names device files, and the kernel gives a file's name to another device when one is unplugged, and to any at a boot.
So the response's own files are recorded with it, and a container starts with it only while its devices are listed and have these.
What number a file has is read when the container is created. The response of another plugin is kept as the kubelet keeps it.
"""

from collections.abc import Iterable

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import AllocateResponse, tidied
from nodedevice_agent.devicemanager.resources.resource import Resource


def recorded_files(
    resource: Resource, device_ids: Iterable[str], response: AllocateResponse
) -> tuple[tuple[str, str], ...]:
    """Path and number of the device files in a response, sorted, as the plugin lists them; none of somebody else's plugin."""
    paths = {device.host_path for device in response.edits.devices}
    if not paths:
        return ()
    return tuple(sorted((path, number) for path, number in _files(resource, device_ids).items() if path in paths))


def is_outdated(allocation: Allocation, resource: Resource) -> bool:
    """Whether its devices, all of which are listed, have other files by now."""
    if any((d := resource.reported(i)) is None or d.is_unconfirmed for i in allocation.device_ids):
        return False
    now = _files(resource, allocation.device_ids)
    if allocation.files:
        return any(tidied(path) not in now for path, _ in allocation.files)
    if allocation.edits is None:
        return False
    # given without device files, such as a GPU by its UUID; or by an older agent, which recorded none
    named = {device.host_path for device in allocation.edits.devices}
    return bool(named) and not named.issuperset(now)


def problem(allocation: Allocation, resource: Resource) -> str:
    """Why a container must not start with it now; empty where it may."""
    # another plugin may have taken over the resource's name meanwhile
    if not resource.is_built_in and not any(map(resource.identity_of, allocation.device_ids)):
        return ""
    name = resource.name
    if resource.is_not_configured:
        return f"{name} is not configured on this node any more: delete the pod, or configure the resource again"
    if not resource.is_live or not resource.is_built_in:
        return f"the built-in device plugin of {name} has not listed its devices yet"
    missing = [device_id for device_id in allocation.device_ids if resource.reported(device_id) is None]
    if missing:
        return f"device {missing[0]} of {name} is not there: connect it again, or delete the pod"
    for device in map(resource.reported, allocation.device_ids):
        if device is not None and device.is_unconfirmed:
            return device.message
    if is_outdated(allocation, resource):
        return f"the device files of {name} are other devices' by now: delete the pod"
    return ""


def _files(resource: Resource, device_ids: Iterable[str]) -> dict[str, str]:
    """Numbers by path, as listed now."""
    listed = (resource.reported(device_id) for device_id in device_ids)
    return {tidied(path): number for device in listed if device is not None for path, number in device.files}
