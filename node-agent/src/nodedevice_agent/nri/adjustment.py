"""The answer to the runtime: container edits as an NRI adjustment, refused where the container would not get exactly these edits.

Pure: the host's device files are an argument. The runtime lets a container read and write every device that it adds, and create
block devices by mknod. Where the device plugin asked for other permissions, more rules of the device cgroup follow; the last rule
counts.
Source: containerd/nri pkg/runtime-tools/generate/generate.go, AdjustDevices and AdjustResources @ v0.12.3.
"""

import posixpath
from collections.abc import Iterator, Sequence

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager.allocation.container_edits import (
    ContainerEdits,
    ContainerMount,
    DeviceFile,
    normalized,
)
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri.host_devices import HostDevice, HostDevices

_REMEDY = "fix the device plugin"
_PERMISSIONS = frozenset("rwm")
# what the runtime permits by itself, by type
_PERMITTED = {"c": frozenset("rw"), "b": frozenset("rwm")}

# type, major, minor
_Device = tuple[str, int, int]


def adjustment(edits: ContainerEdits, host_devices: HostDevices) -> api_pb2.ContainerAdjustment:
    """host_devices: the device files at each device's host path. Raises InjectionRefused that names the invalid edit."""
    # by path in the container
    taken: dict[str, str] = {}
    linux = _linux(edits.devices, host_devices, taken)
    return api_pb2.ContainerAdjustment(
        annotations=dict(_pair("annotation", *item) for item in edits.annotations.items()),
        mounts=[_mount(mount, taken) for mount in dict.fromkeys(edits.mounts)],
        env=[
            api_pb2.KeyValue(key=key, value=value)
            for key, value in (_pair("environment variable", *item) for item in sorted(edits.envs.items()))
        ],
        linux=linux,
        CDI_devices=[api_pb2.CDIDevice(name=name) for name in dict.fromkeys(edits.cdi_devices)],
    )


def _take(taken: dict[str, str], what: str, path: str) -> str:
    """The normalized path, now taken: each path in the container is used once."""
    if not path.startswith("/") or "\0" in path:
        raise InjectionRefused(f"{what} at {path!r} in the container: not an absolute path; {_REMEDY}")
    found = normalized(path)
    if found == "/":
        raise InjectionRefused(f"{what} over / of the container would hide all its files; {_REMEDY}")
    if found in taken:
        raise InjectionRefused(
            f"{taken[found]} and {what} are both at {found} in the container; fix one of the device plugins"
        )
    taken[found] = what
    return found


def _linux(
    devices: Sequence[DeviceFile], host_devices: HostDevices, taken: dict[str, str]
) -> api_pb2.LinuxContainerAdjustment | None:
    wanted: dict[_Device, frozenset[str]] = {}
    files = []
    for device in dict.fromkeys(devices):
        permissions = _permissions(device)
        for found in host_devices[device.host_path]:
            path = posixpath.join(device.container_path, found.below) if found.below else device.container_path
            files.append(_file(found, _take(taken, f"device {device.host_path}", path)))
            key = (found.type, found.major, found.minor)
            wanted[key] = wanted.get(key, frozenset()) | permissions
    if not files:
        return None
    rules = [rule for device, permissions in sorted(wanted.items()) for rule in _rules(device, permissions)]
    return api_pb2.LinuxContainerAdjustment(
        devices=files, resources=api_pb2.LinuxResources(devices=rules) if rules else None
    )


def _permissions(device: DeviceFile) -> frozenset[str]:
    letters = frozenset(device.permissions)
    if not letters or letters - _PERMISSIONS:
        raise InjectionRefused(
            f"device {device.host_path}: permissions {device.permissions!r} are not letters of r, w and m; {_REMEDY}"
        )
    return letters


def _file(device: HostDevice, path: str) -> api_pb2.LinuxDevice:
    return api_pb2.LinuxDevice(
        path=path,
        type=device.type,
        major=device.major,
        minor=device.minor,
        file_mode=api_pb2.OptionalFileMode(value=device.mode),
        uid=api_pb2.OptionalUInt32(value=device.uid),
        gid=api_pb2.OptionalUInt32(value=device.gid),
    )


def _rules(device: _Device, wanted: frozenset[str]) -> Iterator[api_pb2.LinuxDeviceCgroup]:
    """The difference between what the runtime permits and the wanted permissions."""
    kind, major, minor = device
    for allow, letters in ((False, _PERMITTED[kind] - wanted), (True, wanted - _PERMITTED[kind])):
        if letters:
            yield api_pb2.LinuxDeviceCgroup(
                allow=allow,
                type=kind,
                major=api_pb2.OptionalInt64(value=major),
                minor=api_pb2.OptionalInt64(value=minor),
                access="".join(sorted(letters, key="rwm".index)),
            )


def _mount(mount: ContainerMount, taken: dict[str, str]) -> api_pb2.Mount:
    """As the kubelet mounts for a device plugin: recursive, and with private propagation."""
    if not mount.host_path.startswith("/") or "\0" in mount.host_path:
        raise InjectionRefused(f"mount of {mount.host_path!r} of the host: not an absolute path; {_REMEDY}")
    return api_pb2.Mount(
        destination=_take(taken, f"the mount of {mount.host_path}", mount.container_path),
        type="bind",
        source=mount.host_path,
        options=["rbind", "rprivate", "ro" if mount.read_only else "rw"],
    )


def _pair(what: str, name: str, value: str) -> tuple[str, str]:
    """A name that begins with - would remove an entry instead of adding one."""
    if not name or name[0] == "-" or "=" in name or "\0" in name:
        raise InjectionRefused(f"{name!r} cannot be the name of an {what}; {_REMEDY}")
    if "\0" in value:
        raise InjectionRefused(f"{what} {name} has a zero byte in its value; {_REMEDY}")
    return name, value
