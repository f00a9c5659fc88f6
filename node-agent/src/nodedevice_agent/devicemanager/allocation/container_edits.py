"""Container edits: what a container needs to use its devices, from one device plugin's response or merged from several.

Where two responses set the same thing, the first resource by name wins and the conflict is reported; in the kubelet a random
one wins, the first in the order of its map.
Source: kubelet pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions.
"""

import posixpath
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

_ALL_PERMISSIONS = "rwm"


class ContainerMount(Struct, frozen=True, rename="camel"):
    container_path: str
    host_path: str
    read_only: bool


class DeviceFile(Struct, frozen=True, rename="camel"):
    """permissions: letters of r, w and m, as the plugin gave them."""

    container_path: str
    host_path: str
    permissions: str


class ContainerEdits(Struct, frozen=True, rename="camel"):
    """cdi_devices: vendor/class=device, without duplicates. Encoded with all fields, spelled as in the Kubernetes API."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether they change nothing in a container."""
        return not (self.envs or self.mounts or self.devices or self.annotations or self.cdi_devices)


class AllocateResponse(Struct, frozen=True):
    """A device plugin's response to Allocate for one container.

    octets: the ContainerAllocateResponse, protobuf bytes, for the checkpoint. edits: the same, decoded. received_at: by the wall
    clock, Unix seconds; 0 where it is not known.
    """

    octets: bytes
    edits: ContainerEdits
    received_at: int = 0


class EditConflict(Struct, frozen=True, rename="camel"):
    """Two resources set different values for one name: the value of `used` wins, that of `passed_over` is left out."""

    what: str
    name: str
    used: str
    passed_over: str


def merged(responses: Mapping[str, ContainerEdits]) -> tuple[ContainerEdits, tuple[EditConflict, ...]]:
    """Merge the edits of all resources of one container, given by resource name. Also returns the conflicts."""
    conflicts: list[EditConflict] = []
    # by kind and name: the first value, and the resource that set it
    kept: dict[str, dict[str, tuple[Any, str]]] = {}
    for resource_name in sorted(responses):
        for what, name, value in _parts(responses[resource_name]):
            first, by = kept.setdefault(what, {}).setdefault(name, (value, resource_name))
            if first != value:
                conflicts.append(EditConflict(what, name, by, resource_name))
    values = {what: {name: value for name, (value, _) in named.items()} for what, named in kept.items()}
    edits = ContainerEdits(
        envs=values.get("env", {}),
        mounts=tuple(values.get("mount", {}).values()),
        devices=tuple(values.get("device", {}).values()),
        annotations=values.get("annotation", {}),
        cdi_devices=tuple(values.get("cdi device", {})),
    )
    return edits, tuple(conflicts)


def _parts(edits: ContainerEdits) -> Iterator[tuple[str, str, Any]]:
    """Every edit: its kind, its name and its value."""
    yield from (("env", name, value) for name, value in edits.envs.items())
    yield from (("mount", mount.container_path, mount) for mount in edits.mounts)
    yield from (("device", device.container_path, device) for device in edits.devices)
    yield from (("annotation", key, value) for key, value in edits.annotations.items())
    yield from (("cdi device", name, name) for name in edits.cdi_devices)


def normalized(path: str) -> str:
    """A path in a container without `.`, `..` and repeated slashes."""
    # POSIX allows a special meaning for two leading slashes
    return "/" + posixpath.normpath(path).lstrip("/")


def without(
    edits: ContainerEdits, envs: Collection[str], paths: Collection[str]
) -> tuple[ContainerEdits, tuple[str, ...]]:
    """The edits without these environment variables and the mounts at these paths; and the names of what was removed."""
    removed = [f"env {name}" for name in edits.envs if name in envs]
    removed += [f"mount {mount.container_path}" for mount in edits.mounts if normalized(mount.container_path) in paths]
    if not removed:
        return edits, ()
    rest = replace(
        edits,
        envs={name: value for name, value in edits.envs.items() if name not in envs},
        mounts=tuple(mount for mount in edits.mounts if normalized(mount.container_path) not in paths),
    )
    return rest, tuple(removed)


def unrestricted(edits: ContainerEdits) -> ContainerEdits:
    """The edits for a privileged container, which has every permission for every device: a plugin's permissions must not reduce
    them. Invalid permissions stay unchanged, so that they are rejected.
    """
    return replace(edits, devices=tuple(map(_unrestricted, edits.devices)))


def _unrestricted(device: DeviceFile) -> DeviceFile:
    letters = device.permissions
    more = [letter for letter in _ALL_PERMISSIONS if letters and letter not in letters]
    return replace(device, permissions=letters + "".join(more))
