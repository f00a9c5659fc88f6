"""The response to the runtime: container edits as an NRI adjustment. Refuses edits that the container would not get exactly.

Pure. The runtime lets a container read and write every device that it adds, and create block devices by mknod. For other
permissions, more rules of the device cgroup follow; the last rule counts.
Source: containerd/nri pkg/runtime-tools/generate/generate.go, AdjustDevices and AdjustResources @ v0.12.3.
"""

import posixpath
from collections.abc import Iterator, Sequence

from msgspec import Struct
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager import container_edits
from nodedevice_agent.devicemanager.runtime import DeviceOwner, InjectionRefused
from nodedevice_agent.nri.host_devices import HostDevice, HostDevices

_REMEDY = "fix the device plugin"
_PERMISSIONS = frozenset("rwm")
_MAX_SHOWN = 200
_READ_OR_WRITE = 0o6
# what the runtime permits by itself, by type
_PERMITTED = {"c": frozenset("rw"), "b": frozenset("rwm")}

# type, major, minor
_Device = tuple[str, int, int]


class FileRules(Struct, frozen=True):
    """owner: of the device files. has_mode: whether they have the host's permission bits; all may read and write them otherwise."""

    owner: DeviceOwner = DeviceOwner()
    has_mode: bool = True


AS_ON_HOST = FileRules()
NOT_SHOWN = api_pb2.Container()


def adjustment(
    edits: container_edits.ContainerEdits,
    host_devices: HostDevices,
    rules: FileRules = AS_ON_HOST,
    shown: api_pb2.Container = NOT_SHOWN,
) -> api_pb2.ContainerAdjustment:
    """host_devices: the device files at each device's host path. shown: the container so far.

    The container keeps its access to devices, such as those of a privileged one, and its annotations, except the agent's mark.
    Raises InjectionRefused that names the invalid edit.
    """
    places = _Places(host_devices)
    linux = _linux(edits.devices, host_devices, places, rules, shown.linux.resources.devices)
    annotations = dict(map(_annotation, edits.annotations.items()))
    return api_pb2.ContainerAdjustment(
        annotations={
            key: value
            for key, value in annotations.items()
            if key not in shown.annotations or key == CONTAINER_DEVICES_ANNOTATION
        },
        mounts=[_mount(mount) for mount in edits.mounts if places.take_mount(mount)],
        env=[
            api_pb2.KeyValue(key=key, value=value)
            for key, value in (_pair("environment variable", *item) for item in sorted(edits.envs.items()))
        ],
        linux=linux,
        CDI_devices=[api_pb2.CDIDevice(name=name) for name in dict.fromkeys(edits.cdi_devices)],
    )


def closed_file(made: api_pb2.ContainerAdjustment, user: api_pb2.User) -> api_pb2.LinuxDevice | None:
    """The first device file that the container's user can open in no way."""
    groups = {user.gid, *user.additional_gids}
    for file in made.linux.devices if user.uid else ():
        shift = 6 if file.uid.value == user.uid else 3 if file.gid.value in groups else 0
        if file.HasField("file_mode") and not file.file_mode.value >> shift & _READ_OR_WRITE:
            return file
    return None


def how_to_open(file: api_pb2.LinuxDevice) -> str:
    """A remedy for a device file that a container cannot open. Groups have numbers: the pod does not know the host's names."""
    ownership = "--device-ownership container"
    group = file.gid.value
    if not file.file_mode.value >> 3 & _READ_OR_WRITE:
        return ownership
    return f"supplementalGroups: [{group}] in the pod, the group of the host's file; or {ownership}"


class _Places:
    """The paths in the container. Each may repeat if it is the same device file, by its number, or the same mounted path."""

    def __init__(self, host_devices: HostDevices) -> None:
        self._files = {
            posixpath.join(path, found.below) if found.below else path: _number(found)
            for path, devices in host_devices.items()
            for found in devices
        }
        self._taken: dict[str, tuple[_Device | str, str]] = {}

    def take_mount(self, mount: container_edits.ContainerMount) -> bool:
        """A device file that is mounted is that device. Read-only or not, it is one mount."""
        thing = self._files.get(mount.host_path, mount.host_path)
        return self.take(mount.container_path, f"the mount of {mount.host_path}", thing)

    def take(self, path: str, what: str, thing: _Device | str) -> bool:
        """Whether it is the first at this path. Raises InjectionRefused for a second one that is another."""
        place = _checked(path, what)
        if place not in self._taken:
            self._taken[place] = thing, what
            return True
        first, words = self._taken[place]
        if first != thing:
            raise InjectionRefused(
                f"{words} and {what} are both at {place} in the container; fix one of the device plugins"
            )
        return False


def _checked(path: str, what: str) -> str:
    """The path in the container, normalized. Raises InjectionRefused."""
    if "\0" in path:
        raise InjectionRefused(f"{what} at {path!r} in the container: a zero byte in its path; {_REMEDY}")
    place = container_edits.normalized(path)
    if place == "/":
        raise InjectionRefused(f"{what} over / of the container would hide all its files; {_REMEDY}")
    return place


def _linux(
    devices: Sequence[container_edits.DeviceFile],
    host_devices: HostDevices,
    places: _Places,
    rules: FileRules,
    permitted: Sequence[api_pb2.LinuxDeviceCgroup],
) -> api_pb2.LinuxContainerAdjustment | None:
    wanted: dict[_Device, frozenset[str]] = {}
    files = []
    for device in devices:
        permissions = _permissions(device)
        for found in host_devices[device.host_path]:
            path = posixpath.join(device.container_path, found.below) if found.below else device.container_path
            if places.take(path, f"device {device.host_path}", _number(found)):
                files.append(_file(found, container_edits.normalized(path), rules))
            wanted[_number(found)] = wanted.get(_number(found), frozenset()) | permissions
    if not files:
        return None
    cgroup = [
        rule
        for device, permissions in sorted(wanted.items())
        for rule in _rules(device, permissions | _permitted(device, permitted))
    ]
    return api_pb2.LinuxContainerAdjustment(
        devices=files, resources=api_pb2.LinuxResources(devices=cgroup) if cgroup else None
    )


def _number(device: HostDevice) -> _Device:
    return device.type, device.major, device.minor


def _permissions(device: container_edits.DeviceFile) -> frozenset[str]:
    letters = frozenset(device.permissions)
    if not letters or letters - _PERMISSIONS:
        raise InjectionRefused(
            f"device {device.host_path}: permissions {device.permissions!r} are not letters of r, w and m; {_REMEDY}"
        )
    return letters


def _file(device: HostDevice, path: str, rules: FileRules) -> api_pb2.LinuxDevice:
    return api_pb2.LinuxDevice(
        path=path,
        type=device.type,
        major=device.major,
        minor=device.minor,
        file_mode=api_pb2.OptionalFileMode(value=device.mode) if rules.has_mode else None,
        uid=api_pb2.OptionalUInt32(value=rules.owner.uid or device.uid),
        gid=api_pb2.OptionalUInt32(value=rules.owner.gid or device.gid),
    )


def _permitted(device: _Device, rules: Sequence[api_pb2.LinuxDeviceCgroup]) -> frozenset[str]:
    """Permissions of a device under these rules; later rules override. A rule without a type or a number covers all of them."""
    kind, major, minor = device
    letters: frozenset[str] = frozenset()
    for rule in rules:
        if (
            rule.type in ("", "a", kind)
            and (not rule.HasField("major") or rule.major.value in (-1, major))
            and (not rule.HasField("minor") or rule.minor.value in (-1, minor))
        ):
            letters = letters | set(rule.access) if rule.allow else letters - set(rule.access)
    return letters & _PERMISSIONS


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


def _mount(mount: container_edits.ContainerMount) -> api_pb2.Mount:
    """The mount options that the kubelet uses for a device plugin: recursive, and with private propagation."""
    if not mount.host_path.startswith("/") or "\0" in mount.host_path:
        raise InjectionRefused(f"mount of {mount.host_path!r} of the host: not an absolute path; {_REMEDY}")
    return api_pb2.Mount(
        destination=container_edits.normalized(mount.container_path),
        type="bind",
        source=mount.host_path,
        options=["rbind", "rprivate", "ro" if mount.read_only else "rw"],
    )


def _annotation(item: tuple[str, str]) -> tuple[str, str]:
    key, value = _pair("annotation", *item)
    if key.startswith(container_edits.CDI_ANNOTATION_PREFIX):
        shown = value if len(value) <= _MAX_SHOWN else value[:_MAX_SHOWN] + "…"
        raise InjectionRefused(
            f"annotation {key}: {shown!r} is not a list of CDI devices, such as vendor.com/class=device,vendor.com/class=other; "
            f"{_REMEDY}"
        )
    return key, value


def _pair(what: str, name: str, value: str) -> tuple[str, str]:
    """A name that begins with - would remove an entry instead of adding one."""
    if not name or name[0] == "-" or "=" in name or "\0" in name:
        raise InjectionRefused(f"{name!r} cannot be the name of an {what}; {_REMEDY}")
    if "\0" in value:
        raise InjectionRefused(f"{what} {name} has a zero byte in its value; {_REMEDY}")
    return name, value
