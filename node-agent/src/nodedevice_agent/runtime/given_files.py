"""Device files that running containers have for their devices, and which of them are not their devices' any more.

A container's device files are made when it is created, with the numbers of that moment, and no runtime changes them later. A device
that is pulled out and plugged in again may come back under another number, and its old one may go to the next that is plugged in:
what the container opens then is that other device.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.runtime import ContainerInstance

# type (c or b), major and minor number
Number = tuple[str, int, int]


class GivenFile(Struct, frozen=True):
    """A device file of an allocation, and its number in a container that may have a process; None where it is not there.

    host_path: what it is made of when a container is created now.
    """

    container: ContainerInstance
    resource_name: str
    host_path: str
    number: Number | None


def given_files(manager: DeviceManager) -> Iterator[GivenFile]:
    """Of all containers whose devices the runtime has shown."""
    for container in manager.containers:
        if container.devices:
            yield from _of_container(manager, container)


def is_renumbered(file: GivenFile, now: Number | None, has: Callable[[Number], bool]) -> bool:
    """Whether it opens another device, or not the one that it was given for. now: of the file at its path of the host, None where
    there is none, or no single one. has: whether the host has a device with that number.

    One that is missing on the host, with its number free, is harmless: it opens nothing.
    """
    return now != file.number and (now is not None or (file.number is not None and has(file.number)))


def _of_container(manager: DeviceManager, container: ContainerInstance) -> Iterator[GivenFile]:
    numbers = {file.path: (file.type, file.major, file.minor) for file in container.devices}
    pod = manager.pod(container.pod_uid)
    own = pod.container_settings(container.container) if pod is not None else NO_SETTINGS
    for allocation in manager.book.of_container(container.pod_uid, container.container):
        for file in allocation.edits.devices if allocation.edits is not None else ():
            # what the pod itself mounts there comes before a plugin's answer
            if file.container_path not in own.paths:
                yield GivenFile(container, allocation.resource_name, file.host_path, numbers.get(file.container_path))
