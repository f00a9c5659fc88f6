"""What a container was created with, as a mark that the runtime keeps: by it a container is known again after a restart.

A mark is an annotation of the container, not of the pod, so its author cannot set it.
"""

import hashlib
from collections.abc import Iterable, Mapping

from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import RunningContainer

_DIGITS = 12


def marks_of(allocations: Iterable[Allocation]) -> dict[str, str]:
    """Resource name to a fingerprint of the devices."""
    return {a.resource_name: _fingerprint(a.device_ids) for a in allocations}


def _fingerprint(device_ids: tuple[str, ...]) -> str:
    return hashlib.sha256("\0".join(device_ids).encode()).hexdigest()[:_DIGITS]


def written(marks: Mapping[str, str]) -> str:
    return ",".join(f"{name}={marks[name]}" for name in sorted(marks))


def read(container: RunningContainer) -> dict[str, str]:
    """What a container of the runtime is marked with; nothing where it is not."""
    text = container.annotations.get(CONTAINER_DEVICES_ANNOTATION, "")
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {name: fingerprint for name, _, fingerprint in pairs}


def shows(container: RunningContainer, edits: ContainerEdits) -> bool:
    """Whether a container without a mark has what these edits bring, by what the runtime shows of it.

    For containers that somebody else gave their devices, as the kubelet did before --runtime nri. Edits of which the runtime
    shows nothing (mounts, CDI devices) prove nothing.
    """
    env = {f"{name}={value}" for name, value in edits.envs.items()}
    paths = {device.container_path for device in edits.devices}
    if not env and not paths:
        return False
    return env <= set(container.env) and paths <= {device.path for device in container.devices}
