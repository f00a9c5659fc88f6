"""Lists the device files in running containers, and detects files whose number is outdated.

The runtime creates a container's device files with the current numbers, and never changes them. A device that is unplugged and
plugged in again may get another number, and the next device its old one. The container then opens that other device.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.runtime import ContainerInstance

# type (c or b), major and minor number
Number = tuple[str, int, int]


class GivenFile(Struct, frozen=True):
    """A device file of an allocation. number: in a container that may have a process; None if the file is missing there."""

    container: ContainerInstance
    resource_name: str
    host_path: str
    number: Number | None


def given_files(manager: DeviceManager) -> Iterator[GivenFile]:
    """Yield the device files of all containers whose devices the runtime has reported."""
    for container in manager.containers:
        if container.devices:
            yield from _of_container(manager, container)


def is_renumbered(file: GivenFile, now: Number | None, has: Callable[[Number], bool]) -> bool:
    """Whether the file opens another device than the allocated one: if its number is free on the host, it opens nothing.

    now: the number at the host's path; None if the path has no device. has: whether the host has a device with a number.
    """
    return now != file.number and (now is not None or (file.number is not None and has(file.number)))


def _of_container(manager: DeviceManager, container: ContainerInstance) -> Iterator[GivenFile]:
    numbers = {file.path: (file.type, file.major, file.minor) for file in container.devices}
    pod = manager.pod(container.pod_uid)
    own = pod.container_settings(container.container) if pod is not None else NO_SETTINGS
    for allocation in manager.book.of_container(container.pod_uid, container.container):
        for file in allocation.edits.devices if allocation.edits is not None else ():
            # the pod's own mount at this path overrides the plugin's response
            if file.container_path not in own.paths:
                yield GivenFile(container, allocation.resource_name, file.host_path, numbers.get(file.container_path))
