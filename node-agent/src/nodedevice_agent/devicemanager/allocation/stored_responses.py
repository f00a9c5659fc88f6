"""Whether the stored response of a built-in plugin is still correct for its devices. Pure.

A response names device files. The kernel may give a file's name to another device after an unplug, and to any device at a boot. A
response may also name CDI devices, whose specification may be removed or outdated. Therefore the names in the response are recorded
with it, and a container starts only while its devices are listed with these names.

The number of a file is read when the container is created. The response of another plugin is kept as in the kubelet.
"""

from collections.abc import Iterable

from nodedevice_agent.devicemanager.container_edits import AllocateResponse, tidied
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.resources.resource import Resource


def recorded_files(
    resource: Resource, device_ids: Iterable[str], response: AllocateResponse
) -> tuple[tuple[str, str], ...]:
    """Path and number of the device files in a response, and its CDI names, sorted, as the plugin lists them; none of another
    vendor's plugin.
    """
    names = {*(device.host_path for device in response.edits.devices), *response.edits.cdi_devices}
    if not names:
        return ()
    return tuple(sorted((name, number) for name, number in _files(resource, device_ids).items() if name in names))


def listed_names(resource: Resource, device_ids: Iterable[str]) -> frozenset[str]:
    """Paths and CDI names of these devices, as the plugin lists them now; none of another vendor's plugin. A response is for the
    names at the time of its call.
    """
    return frozenset(_files(resource, device_ids)) if resource.presence.is_built_in else frozenset()


def is_outdated(allocation: Allocation, resource: Resource) -> bool:
    """Whether its devices, which must all be listed, now have other files or CDI names."""
    if any((d := resource.reported(i)) is None or d.is_unconfirmed for i in allocation.device_ids):
        return False
    now = _files(resource, allocation.device_ids)
    if allocation.files:
        return any(tidied(path) not in now for path, _ in allocation.files)
    if allocation.edits is None:
        return False
    # given without device files, such as a GPU by its UUID; or by an older agent, which recorded none
    if allocation.edits.cdi_devices:
        return bool(_unspecified(allocation, resource))
    named = {device.host_path for device in allocation.edits.devices}
    return bool(named) and not named.issuperset(path for path in now if path.startswith("/"))


def problem(allocation: Allocation, resource: Resource) -> str:
    """Why a container must not start with the response now; "" if it may."""
    # another plugin may have taken over the resource's name meanwhile
    has_said = resource.listed.has_identities or resource.identities.past
    if not resource.presence.is_built_in and not (has_said and any(map(resource.identities.of, allocation.device_ids))):
        return ""
    name = resource.name
    if resource.presence.is_not_configured:
        return f"{name} is not configured on this node any more: delete the pod, or configure the resource again"
    if not resource.is_live or not resource.presence.is_built_in:
        return f"the built-in device plugin of {name} has not listed its devices yet"
    missing = [device_id for device_id in allocation.device_ids if resource.reported(device_id) is None]
    if missing:
        return f"device {missing[0]} of {name} is not there: connect it again, or delete the pod"
    for device in map(resource.reported, allocation.device_ids):
        if device is not None and device.is_unconfirmed:
            return device.message
    if is_outdated(allocation, resource):
        if gone := _unspecified(allocation, resource):
            return f"no container can get CDI device {gone[0]} of {name} now: write its specification again, or delete the pod"
        return f"the device files of {name} are other devices' by now: delete the pod"
    return ""


def _unspecified(allocation: Allocation, resource: Resource) -> list[str]:
    """CDI names in the response that its devices do not have now."""
    now = _files(resource, allocation.device_ids)
    return [name for name in (allocation.edits.cdi_devices if allocation.edits else ()) if name not in now]


def _files(resource: Resource, device_ids: Iterable[str]) -> dict[str, str]:
    """Numbers by path, and of CDI names, as listed now."""
    listed = (resource.reported(device_id) for device_id in device_ids)
    return {tidied(path): number for device in listed if device is not None for path, number in device.files}
