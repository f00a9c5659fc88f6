"""Container edits: the changes that let a container use its devices, from one device plugin's response or merged from several.

A response is brought into a normal form when it is decoded, and only normal forms are compared: paths without repeated slashes,
permissions in one order, CDI devices by name however the plugin named them. Compatible settings are joined: the permissions of one
file, a mount that one response may write. If two responses conflict, the first resource by name wins and the conflict is reported;
in the kubelet a random one wins, the first in the order of its map. Two host paths are only identified as one device file when the
container is created (nri/adjustment).

Source: kubelet pkg/kubelet/cm/devicemanager/pod_devices.go, deviceRunContainerOptions; CDI's annotations:
tags.cncf.io/container-device-interface pkg/cdi/annotations.go and pkg/parser/parser.go @ v1.1.1.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

_ALL_PERMISSIONS = "rwm"
CDI_ANNOTATION_PREFIX = "cdi.k8s.io/"
_CDI_KIND = "[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_ENV, _MOUNT, _ANNOTATION = "env", "mount", "annotation"
_CDI_NAME = re.compile(f"{_CDI_KIND}/{_CDI_KIND}=[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")


class ContainerMount(Struct, frozen=True, rename="camel"):
    container_path: str
    host_path: str
    read_only: bool


class DeviceFile(Struct, frozen=True, rename="camel"):
    """permissions: letters of r, w and m, in this order; invalid letters come last, and the file is refused for them."""

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
        return self == ContainerEdits()


class AllocateResponse(Struct, frozen=True):
    """octets: the ContainerAllocateResponse, for the checkpoint. edits: decoded. received_at: wall clock, Unix seconds, or 0."""

    octets: bytes
    edits: ContainerEdits
    received_at: int = 0


class EditConflict(Struct, frozen=True, rename="camel"):
    """Two resources set different values for one name: the value of `used` wins, that of `passed_over` is left out."""

    what: str
    name: str
    used: str
    passed_over: str


def in_normal_form(edits: ContainerEdits) -> ContainerEdits:
    """Convert edits to a form in which equal edits compare equal. As in a container runtime, a relative path in the container
    begins at its root, and a device without a container path gets the host path. CDI devices from annotations join the others, and
    these annotations are removed. One with an invalid CDI device name stays, and is refused.
    """
    by_annotation = {
        key: value.split(",") for key, value in sorted(edits.annotations.items()) if _has_cdi_names(key, value)
    }
    names = (name for named in by_annotation.values() for name in named)
    return ContainerEdits(
        edits.envs,
        tuple(ContainerMount(normalized(m.container_path), tidied(m.host_path), m.read_only) for m in edits.mounts),
        tuple(
            DeviceFile(normalized(d.container_path or d.host_path), tidied(d.host_path), _ordered(d.permissions))
            for d in edits.devices
        ),
        {key: value for key, value in edits.annotations.items() if key not in by_annotation},
        tuple(dict.fromkeys([*edits.cdi_devices, *names])),
    )


def _has_cdi_names(key: str, value: str) -> bool:
    return key.startswith(CDI_ANNOTATION_PREFIX) and all(map(_CDI_NAME.fullmatch, value.split(",")))


def tidied(host_path: str) -> str:
    """A path of the host without repeated slashes and `.`; `..` stays, as it may follow a link. A relative path stays relative."""
    parts = [part for part in host_path.split("/") if part not in ("", ".")]
    return "/" * host_path.startswith("/") + "/".join(parts)


def _ordered(letters: Iterable[str]) -> str:
    """Each letter once, in the order r, w, m; invalid permissions last."""
    return "".join(sorted(set(letters), key=lambda letter: (_ALL_PERMISSIONS.find(letter) % 4, letter)))


def merged(responses: Mapping[str, ContainerEdits]) -> tuple[ContainerEdits, tuple[EditConflict, ...]]:
    """Merge the edits of all resources of one container, in normal form, by resource name. Also returns the conflicts."""
    conflicts: list[EditConflict] = []
    # by kind and name: the first value, and the resource that set it
    kept: dict[tuple[str, str], tuple[str, str]] = {}
    mounts: list[ContainerMount] = []
    for resource_name, edits in sorted(responses.items()):
        for what, name, value in _values(edits):
            first, by = kept.setdefault((what, name), (value, resource_name))
            if first != value and by != resource_name:
                conflicts.append(EditConflict(what, name, by, resource_name))
        for mount in edits.mounts:
            first, by = kept[_MOUNT, mount.container_path]
            # two mounts of one response at one path are a mistake of its plugin: the container is refused
            if first == mount.host_path or by == resource_name:
                mounts.append(mount)
    in_order = [responses[name] for name in sorted(responses)]
    edits = ContainerEdits(
        envs={name: value for (what, name), (value, _) in kept.items() if what == _ENV},
        mounts=_joined_mounts(mounts),
        devices=_joined_files(device for edits in in_order for device in edits.devices),
        annotations={name: value for (what, name), (value, _) in kept.items() if what == _ANNOTATION},
        cdi_devices=tuple(dict.fromkeys(name for edits in in_order for name in edits.cdi_devices)),
    )
    return edits, tuple(conflicts)


def _values(edits: ContainerEdits) -> Iterator[tuple[str, str, str]]:
    yield from ((_ENV, name, value) for name, value in edits.envs.items())
    yield from ((_MOUNT, mount.container_path, mount.host_path) for mount in edits.mounts)
    yield from ((_ANNOTATION, key, value) for key, value in edits.annotations.items())


def _joined_mounts(mounts: Iterable[ContainerMount]) -> tuple[ContainerMount, ...]:
    """Join mounts of one host path at one container path: writable if one of them is."""
    joined: dict[tuple[str, str], bool] = {}
    for m in mounts:
        joined[m.container_path, m.host_path] = joined.get((m.container_path, m.host_path), True) and m.read_only
    return tuple(ContainerMount(*paths, read_only) for paths, read_only in joined.items())


def _joined_files(devices: Iterable[DeviceFile]) -> tuple[DeviceFile, ...]:
    """Join device files of one host path at one container path, with the permissions of all."""
    joined: dict[tuple[str, str], str] = {}
    for d in devices:
        joined[d.container_path, d.host_path] = joined.get((d.container_path, d.host_path), "") + d.permissions
    return tuple(DeviceFile(*paths, _ordered(letters)) for paths, letters in joined.items())


def normalized(path: str) -> str:
    """A path in a container without `.`, `..` and repeated slashes; a relative one begins at its root."""
    # POSIX allows a special meaning for two leading slashes
    return "/" + posixpath.normpath(f"/{path}").lstrip("/")


def without(
    edits: ContainerEdits, envs: Collection[str], paths: Collection[str]
) -> tuple[ContainerEdits, tuple[str, ...]]:
    """Remove these environment variables and the mounts at these paths. Also returns the names of the removed settings."""
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
    return replace(
        edits,
        devices=tuple(
            replace(d, permissions=_ordered(d.permissions + _ALL_PERMISSIONS) if d.permissions else "")
            for d in edits.devices
        ),
    )
