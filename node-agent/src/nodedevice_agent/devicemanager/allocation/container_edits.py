"""Container edits: what a container needs to use its devices, from one device plugin's response or merged from several.

Where two responses set the same thing, the first resource by name wins and the conflict is reported; in the kubelet a random
one wins, the first in the order of its map.
Source: kubelet pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions.
"""

import posixpath
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_ALL_PERMISSIONS = "rwm"


@dataclass(frozen=True, slots=True)
class ContainerMount:
    container_path: str
    host_path: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """permissions: letters of r, w and m, as the plugin gave them."""

    container_path: str
    host_path: str
    permissions: str


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """cdi_devices: vendor/class=device, without duplicates."""

    envs: Mapping[str, str] = field(default_factory=dict)
    mounts: tuple[ContainerMount, ...] = ()
    devices: tuple[DeviceFile, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether they change nothing in a container."""
        return not (self.envs or self.mounts or self.devices or self.annotations or self.cdi_devices)

    def to_json(self) -> dict[str, Any]:
        """All fields, including empty ones, spelled as in the Kubernetes API."""
        return {
            "envs": dict(self.envs),
            "mounts": [
                {"containerPath": m.container_path, "hostPath": m.host_path, "readOnly": m.read_only}
                for m in self.mounts
            ],
            "devices": [
                {"containerPath": d.container_path, "hostPath": d.host_path, "permissions": d.permissions}
                for d in self.devices
            ],
            "annotations": dict(self.annotations),
            "cdiDevices": list(self.cdi_devices),
        }


@dataclass(frozen=True, slots=True)
class AllocateResponse:
    """A device plugin's response to Allocate for one container.

    octets: the ContainerAllocateResponse, protobuf bytes, for the checkpoint. edits: the same, decoded.
    """

    octets: bytes
    edits: ContainerEdits


@dataclass(frozen=True, slots=True)
class EditConflict:
    """Two resources set different values for one name: the value of `used` wins, that of `passed_over` is left out."""

    what: str
    name: str
    used: str
    passed_over: str

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "name": self.name, "used": self.used, "passedOver": self.passed_over}


def merged(responses: Mapping[str, ContainerEdits]) -> tuple[ContainerEdits, tuple[EditConflict, ...]]:
    """Merge the edits of all resources of one container, given by resource name. Also returns the conflicts."""
    keeper = _Keeper()
    for resource_name in sorted(responses):
        edits = responses[resource_name]
        for env, value in edits.envs.items():
            keeper.keep("env", env, value, resource_name)
        for mount in edits.mounts:
            keeper.keep("mount", mount.container_path, mount, resource_name)
        for device in edits.devices:
            keeper.keep("device", device.container_path, device, resource_name)
        for key, value in edits.annotations.items():
            keeper.keep("annotation", key, value, resource_name)
        for name in edits.cdi_devices:
            keeper.keep("cdi device", name, name, resource_name)
    edits = ContainerEdits(
        envs=keeper.of("env"),
        mounts=tuple(keeper.of("mount").values()),
        devices=tuple(keeper.of("device").values()),
        annotations=keeper.of("annotation"),
        cdi_devices=tuple(keeper.of("cdi device")),
    )
    return edits, tuple(keeper.conflicts)


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
    return replace(edits, devices=tuple(_unrestricted(edits.devices)))


def _unrestricted(devices: Iterable[DeviceFile]) -> Iterable[DeviceFile]:
    for device in devices:
        letters = device.permissions
        more = [letter for letter in _ALL_PERMISSIONS if letters and letter not in letters]
        yield replace(device, permissions=letters + "".join(more))


class _Keeper:
    """Keeps the first value of each kind and name."""

    def __init__(self) -> None:
        self.conflicts: list[EditConflict] = []
        self._kept: dict[str, dict[str, tuple[Any, str]]] = {}

    def keep(self, what: str, name: str, value: Any, resource_name: str) -> None:
        kept, by = self._kept.setdefault(what, {}).setdefault(name, (value, resource_name))
        if kept != value:
            self.conflicts.append(EditConflict(what, name, by, resource_name))

    def of(self, what: str) -> dict[str, Any]:
        return {name: value for name, (value, _) in self._kept.get(what, {}).items()}
