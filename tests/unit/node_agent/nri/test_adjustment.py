"""Pods and containers of NRI, decoded; container edits as an adjustment, and invalid ones, refused with a message naming them."""

from collections.abc import Sequence
from typing import cast

import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import ContainerState, InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.nri import codec
from nodedevice_agent.nri.adjustment import adjustment
from nodedevice_agent.nri.host_devices import HostDevice
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

FUSE = HostDevice("", "c", 10, 229, 0o660, 0, 44)
DISK = HostDevice("", "b", 7, 1, 0o600, 0, 0)
HOST_DEVICES: dict[str, tuple[HostDevice, ...]] = {
    "/dev/fuse": (FUSE,),
    "/dev/disk": (DISK,),
    "/dev/snd": (HostDevice("a", "c", 116, 1, 0o666, 0, 0), HostDevice("sub/b", "c", 116, 2, 0o666, 0, 0)),
}


def edits(
    envs: dict[str, str] | None = None,
    mounts: Sequence[ContainerMount] = (),
    devices: Sequence[DeviceFile] = (),
    annotations: dict[str, str] | None = None,
    cdi: Sequence[str] = (),
) -> ContainerEdits:
    return ContainerEdits(envs or {}, tuple(mounts), tuple(devices), annotations or {}, tuple(cdi))


def rules(*devices: DeviceFile) -> list[tuple[bool, str, int, int, str]]:
    linux = adjustment(edits(devices=devices), HOST_DEVICES).linux
    return [(r.allow, r.type, r.major.value, r.minor.value, r.access) for r in linux.resources.devices]


@pytest.mark.parametrize(
    ("number", "state"),
    [
        (0, ContainerState.UNKNOWN),
        (1, ContainerState.CREATED),
        (2, ContainerState.PAUSED),
        (3, ContainerState.RUNNING),
        (4, ContainerState.STOPPED),
        (5, ContainerState.UNKNOWN),
        (-1, ContainerState.UNKNOWN),
    ],
)
def test_states(number: int, state: ContainerState) -> None:
    message = api_pb2.Container(state=cast("api_pb2.ContainerState.ValueType", number))
    assert codec.container(message).state is state


def test_missing_fields() -> None:
    assert codec.sandbox(api_pb2.PodSandbox()) == Sandbox("", "", "", "")
    assert codec.container(api_pb2.Container()) == RunningContainer("", "", "")


def test_a_process() -> None:
    assert codec.container(api_pb2.Container(pid=7)).pid == 7
    assert codec.container(api_pb2.Container(labels={"io.kubernetes.pod.uid": "uid-1"})).pod_uid == "uid-1"


def test_nothing() -> None:
    made = adjustment(edits(), {})
    assert made.ByteSize() == 0


def test_envs_annotations_and_cdi_devices() -> None:
    made = adjustment(edits({"B": "2", "A": "1=1"}, annotations={"x/y": "z"}, cdi=("a/b=c", "a/b=d", "a/b=c")), {})
    assert [(e.key, e.value) for e in made.env] == [("A", "1=1"), ("B", "2")]
    assert dict(made.annotations) == {"x/y": "z"}
    assert [d.name for d in made.CDI_devices] == ["a/b=c", "a/b=d"]


def test_mounts() -> None:
    made = adjustment(
        edits(mounts=[ContainerMount("/lib/x", "/opt/x", True), ContainerMount("/data", "/srv/y", False)]), {}
    )
    assert [(m.destination, m.source, m.type, list(m.options)) for m in made.mounts] == [
        ("/lib/x", "/opt/x", "bind", ["rbind", "rprivate", "ro"]),
        ("/data", "/srv/y", "bind", ["rbind", "rprivate", "rw"]),
    ]


def test_a_device_file_is_made_like_the_hosts() -> None:
    (made,) = adjustment(edits(devices=[DeviceFile("/dev/f", "/dev/fuse", "rw")]), HOST_DEVICES).linux.devices
    assert (made.path, made.type, made.major, made.minor) == ("/dev/f", "c", 10, 229)
    assert (made.file_mode.value, made.uid.value, made.gid.value) == (0o660, 0, 44)
    # the owner root is set explicitly, because an unset owner means another
    assert made.HasField("uid")


def test_a_directory_of_devices() -> None:
    made = adjustment(edits(devices=[DeviceFile("/dev/sound/", "/dev/snd", "rw")]), HOST_DEVICES)
    assert [d.path for d in made.linux.devices] == ["/dev/sound/a", "/dev/sound/sub/b"]


@pytest.mark.parametrize(
    ("permissions", "expected"),
    [
        ("rw", []),
        ("wr", []),
        ("r", [(False, "c", 10, 229, "w")]),
        ("w", [(False, "c", 10, 229, "r")]),
        ("rwm", [(True, "c", 10, 229, "m")]),
        ("mrw", [(True, "c", 10, 229, "m")]),
        ("rm", [(False, "c", 10, 229, "w"), (True, "c", 10, 229, "m")]),
        ("m", [(False, "c", 10, 229, "rw"), (True, "c", 10, 229, "m")]),
    ],
)
def test_permissions_of_a_character_device(permissions: str, expected: list[tuple[bool, str, int, int, str]]) -> None:
    assert rules(DeviceFile("/dev/f", "/dev/fuse", permissions)) == expected


@pytest.mark.parametrize(
    ("permissions", "expected"), [("rwm", []), ("rw", [(False, "b", 7, 1, "m")]), ("r", [(False, "b", 7, 1, "wm")])]
)
def test_permissions_of_a_block_device(permissions: str, expected: list[tuple[bool, str, int, int, str]]) -> None:
    assert rules(DeviceFile("/dev/d", "/dev/disk", permissions)) == expected


def test_one_device_at_two_places_has_the_permissions_of_both() -> None:
    assert rules(DeviceFile("/dev/f", "/dev/fuse", "r"), DeviceFile("/dev/g", "/dev/fuse", "w")) == []


def test_duplicate_edits_are_made_once() -> None:
    device, mount = DeviceFile("/dev/f", "/dev/fuse", "rw"), ContainerMount("/a", "/b", True)
    made = adjustment(edits(devices=[device, device], mounts=[mount, mount]), HOST_DEVICES)
    assert len(made.linux.devices) == len(made.mounts) == 1


@pytest.mark.kubelet("weak spot 23")
@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (edits(mounts=[ContainerMount("/", "/srv", True)]), "/srv over /"),
        (edits(mounts=[ContainerMount("//", "/srv", True)]), "/srv over /"),
        (edits(mounts=[ContainerMount("/a/../.", "/srv", True)]), "/srv over /"),
        (edits(mounts=[ContainerMount("/../..", "/srv", True)]), "/srv over /"),
        (edits(mounts=[ContainerMount("data", "/srv", True)]), "'data'"),
        (edits(mounts=[ContainerMount("", "/srv", True)]), "''"),
        (edits(mounts=[ContainerMount("-/etc", "/srv", True)]), "'-/etc'"),
        (edits(mounts=[ContainerMount("/data", "srv", True)]), "'srv'"),
        (edits(mounts=[ContainerMount("/da\0ta", "/srv", True)]), "absolute path"),
        (edits(mounts=[ContainerMount("/data", "/srv\0", True)]), "absolute path"),
        (
            edits(mounts=[ContainerMount("/data", "/x", True), ContainerMount("/data", "/y", True)]),
            "/x and the mount of /y",
        ),
        (edits(mounts=[ContainerMount("/data", "/x", True), ContainerMount("/data/", "/x", False)]), "both at /data"),
        (edits(mounts=[ContainerMount("/data", "/x", True), ContainerMount("//data/./", "/y", True)]), "both at /data"),
        (
            edits(devices=[DeviceFile("/dev/f", "/dev/fuse", "rw")], mounts=[ContainerMount("/dev/f", "/x", True)]),
            "device /dev/fuse and the mount of /x are both at /dev/f",
        ),
        (
            edits(devices=[DeviceFile("/dev/f", "/dev/fuse", "rw"), DeviceFile("/dev/f", "/dev/disk", "rw")]),
            "/dev/fuse and device /dev/disk",
        ),
        (edits(devices=[DeviceFile("dev/f", "/dev/fuse", "rw")]), "'dev/f'"),
        (edits(devices=[DeviceFile("/", "/dev/fuse", "rw")]), "/dev/fuse over /"),
        (edits(devices=[DeviceFile("/dev/f", "/dev/fuse", "")]), "permissions ''"),
        (edits(devices=[DeviceFile("/dev/f", "/dev/fuse", "rx")]), "permissions 'rx'"),
        (edits({"-PATH": ""}), "'-PATH'"),
        (edits({"": "x"}), "''"),
        (edits({"A=B": "x"}), "'A=B'"),
        (edits({"A": "x\0"}), "A has a zero byte"),
        (edits(annotations={"-a": "x"}), "'-a'"),
    ],
)
def test_refused_by_name(wanted: ContainerEdits, named: str) -> None:
    with pytest.raises(InjectionRefused) as caught:
        adjustment(wanted, HOST_DEVICES)
    assert named in str(caught.value)
    assert "fix " in str(caught.value)
