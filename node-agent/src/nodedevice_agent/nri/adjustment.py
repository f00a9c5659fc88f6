"""What a container needs to reach its devices, as an NRI adjustment; refused where the result would not be what was meant.

Pure: what the host's device files are is handed in. The runtime lets a container read and write every device that it adds (block
devices also be made by mknod); where the device plugin said otherwise, further rules of the device cgroup follow, and a later
rule has its way.
Source: containerd/nri pkg/runtime-tools/generate/generate.go, AdjustDevices and AdjustResources @ v0.12.3.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, DeviceFile, Mount, place
from nodedevice_agent.devicemanager.runtime import InjectionRefused
from nodedevice_agent.nri.host_devices import HostNode

_MEND = "the device plugin has to be mended"
_PERMISSIONS = frozenset("rwm")
# what the runtime gives by itself, by type
_GIVEN = {"c": frozenset("rw"), "b": frozenset("rwm")}

# (type, major, minor)
_Device = tuple[str, int, int]


def adjustment(edits: ContainerEdits, nodes: Mapping[str, Sequence[HostNode]]) -> api_pb2.ContainerAdjustment:
    """nodes: the device files at each device's host path. Raises InjectionRefused that names what cannot be had."""
    places = _Places()
    linux = _linux(edits.devices, nodes, places)
    return api_pb2.ContainerAdjustment(
        annotations={
            _name("annotation", key): _value("annotation", key, edits.annotations[key]) for key in edits.annotations
        },
        mounts=[_mount(mount, places) for mount in dict.fromkeys(edits.mounts)],
        env=[
            api_pb2.KeyValue(key=_name("environment variable", key), value=_value("environment variable", key, value))
            for key, value in sorted(edits.envs.items())
        ],
        linux=linux,
        CDI_devices=[api_pb2.CDIDevice(name=name) for name in dict.fromkeys(edits.cdi_devices)],
    )


class _Places:
    """Paths in the container, each for one thing."""

    def __init__(self) -> None:
        self._taken: dict[str, str] = {}

    def take(self, what: str, path: str) -> str:
        """The path as the runtime shall have it, without detours."""
        if not path.startswith("/") or "\0" in path:
            raise InjectionRefused(f"{what} at {path!r} in the container: not an absolute path; {_MEND}")
        found = place(path)
        if found == "/":
            raise InjectionRefused(f"{what} over / of the container would hide all of its files; {_MEND}")
        if found in self._taken:
            raise InjectionRefused(
                f"{self._taken[found]} and {what} are both to be at {found} in the container; one of the plugins has to be mended"
            )
        self._taken[found] = what
        return found


def _linux(
    devices: Sequence[DeviceFile], nodes: Mapping[str, Sequence[HostNode]], places: _Places
) -> api_pb2.LinuxContainerAdjustment | None:
    wanted: dict[_Device, frozenset[str]] = {}
    files = []
    for device in dict.fromkeys(devices):
        permissions = _permissions(device)
        for node in nodes[device.host_path]:
            path = posixpath.join(device.container_path, node.below) if node.below else device.container_path
            files.append(_file(node, places.take(f"device {device.host_path}", path)))
            key = (node.type, node.major, node.minor)
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
            f"device {device.host_path}: permissions {device.permissions!r} are not letters of r, w and m; {_MEND}"
        )
    return letters


def _file(node: HostNode, path: str) -> api_pb2.LinuxDevice:
    return api_pb2.LinuxDevice(
        path=path,
        type=node.type,
        major=node.major,
        minor=node.minor,
        file_mode=api_pb2.OptionalFileMode(value=node.mode),
        uid=api_pb2.OptionalUInt32(value=node.uid),
        gid=api_pb2.OptionalUInt32(value=node.gid),
    )


def _rules(device: _Device, wanted: frozenset[str]) -> Iterator[api_pb2.LinuxDeviceCgroup]:
    """From what the runtime gives to what is wanted."""
    kind, major, minor = device
    for allow, letters in ((False, _GIVEN[kind] - wanted), (True, wanted - _GIVEN[kind])):
        if letters:
            yield api_pb2.LinuxDeviceCgroup(
                allow=allow,
                type=kind,
                major=api_pb2.OptionalInt64(value=major),
                minor=api_pb2.OptionalInt64(value=minor),
                access="".join(sorted(letters, key="rwm".index)),
            )


def _mount(mount: Mount, places: _Places) -> api_pb2.Mount:
    """As the kubelet has a device plugin's mounts made: with what is mounted below, and none of it travels back."""
    if not mount.host_path.startswith("/") or "\0" in mount.host_path:
        raise InjectionRefused(f"mount of {mount.host_path!r} of the host: not an absolute path; {_MEND}")
    return api_pb2.Mount(
        destination=places.take(f"the mount of {mount.host_path}", mount.container_path),
        type="bind",
        source=mount.host_path,
        options=["rbind", "rprivate", "ro" if mount.read_only else "rw"],
    )


def _name(what: str, name: str) -> str:
    """A name beginning with - would take away what is there instead of adding something."""
    if not name or name[0] == "-" or "=" in name or "\0" in name:
        raise InjectionRefused(f"{name!r} cannot be the name of an {what}; {_MEND}")
    return name


def _value(what: str, name: str, value: str) -> str:
    if "\0" in value:
        raise InjectionRefused(f"{what} {name} has a zero byte in its value; {_MEND}")
    return value
