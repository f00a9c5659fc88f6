"""Pods and containers of NRI, decoded; container edits as an adjustment, and invalid ones, refused with a message naming them."""

from typing import cast

import pytest
from nodedevice_agent.devicemanager.container_edits import ContainerEdits, ContainerMount, DeviceFile
from nodedevice_agent.devicemanager.runtime import ContainerState, DeviceOwner, InjectionRefused
from nodedevice_agent.nri import codec
from nodedevice_agent.nri.adjustment import FileRules, adjustment, closed_file, how_to_open
from nodedevice_agent.nri.host_devices import HostDevice
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

FUSE = HostDevice("", "c", 10, 229, 0o660, 0, 44)
DISK = HostDevice("", "b", 7, 1, 0o600, 0, 0)
HOST_DEVICES: dict[str, tuple[HostDevice, ...]] = {
    "/dev/fuse": (FUSE,),
    "/dev/disk": (DISK,),
    "/dev/snd": (HostDevice("a", "c", 116, 1, 0o666, 0, 0), HostDevice("sub/b", "c", 116, 2, 0o666, 0, 0)),
}


Thing = DeviceFile | ContainerMount


def edits(*things: Thing, **more: dict[str, str]) -> ContainerEdits:
    mounts = tuple(thing for thing in things if isinstance(thing, ContainerMount))
    devices = tuple(thing for thing in things if isinstance(thing, DeviceFile))
    return ContainerEdits(more.get("envs", {}), mounts, devices, more.get("annotations", {}))


def rules(*devices: DeviceFile) -> list[tuple[bool, str, int, int, str]]:
    linux = adjustment(edits(*devices), HOST_DEVICES).linux
    return [(r.allow, r.type, r.major.value, r.minor.value, r.access) for r in linux.resources.devices]


def test_states() -> None:
    numbers = cast("list[api_pb2.ContainerState.ValueType]", [-1, 0, 1, 2, 3, 4, 5])
    words = "UNKNOWN", "UNKNOWN", "CREATED", "PAUSED", "RUNNING", "STOPPED", "UNKNOWN"
    found = [codec.container(api_pb2.Container(state=number)).state for number in numbers]
    assert found == [ContainerState[word] for word in words]


def test_a_process_and_the_pod_of_a_label() -> None:
    found = codec.container(api_pb2.Container(pid=7, labels={"io.kubernetes.pod.uid": "uid-1"}))
    assert (found.pid, found.pod_uid) == (7, "uid-1")


def test_paths_of_devices_are_in_normal_form() -> None:
    """As those of responses: a kubelet's container has them as its plugin wrote them."""
    paths = ["//dev/x", "/dev/./x/", "dev/x"]
    linux = api_pb2.LinuxContainer(devices=[api_pb2.LinuxDevice(path=path, type="c") for path in paths])
    assert [d.path for d in codec.container(api_pb2.Container(linux=linux)).devices] == ["/dev/x"] * 3


def test_a_device_file_is_made_like_the_hosts() -> None:
    (made,) = adjustment(edits(DeviceFile("/dev/f", "/dev/fuse", "rw")), HOST_DEVICES).linux.devices
    assert (made.path, made.type, made.major, made.minor) == ("/dev/f", "c", 10, 229)
    assert (made.file_mode.value, made.uid.value, made.gid.value) == (0o660, 0, 44)
    # the owner root is set explicitly, because an unset owner means another
    assert made.HasField("uid")


def test_a_directory_of_devices() -> None:
    made = adjustment(edits(DeviceFile("/dev/sound/", "/dev/snd", "rw")), HOST_DEVICES)
    assert [d.path for d in made.linux.devices] == ["/dev/sound/a", "/dev/sound/sub/b"]


@pytest.mark.parametrize(
    ("host_path", "permissions", "expected"),
    [
        ("/dev/fuse", "rw", []),
        ("/dev/fuse", "wr", []),
        ("/dev/fuse", "r", [(False, "c", 10, 229, "w")]),
        ("/dev/fuse", "w", [(False, "c", 10, 229, "r")]),
        ("/dev/fuse", "rwm", [(True, "c", 10, 229, "m")]),
        ("/dev/fuse", "mrw", [(True, "c", 10, 229, "m")]),
        ("/dev/fuse", "rm", [(False, "c", 10, 229, "w"), (True, "c", 10, 229, "m")]),
        ("/dev/fuse", "m", [(False, "c", 10, 229, "rw"), (True, "c", 10, 229, "m")]),
        ("/dev/disk", "rwm", []),
        ("/dev/disk", "rw", [(False, "b", 7, 1, "m")]),
        ("/dev/disk", "r", [(False, "b", 7, 1, "wm")]),
    ],
)
def test_device_permissions(host_path: str, permissions: str, expected: list[tuple[bool, str, int, int, str]]) -> None:
    assert rules(DeviceFile("/dev/f", host_path, permissions)) == expected


def test_one_device_at_two_places_has_the_permissions_of_both() -> None:
    assert rules(DeviceFile("/dev/f", "/dev/fuse", "r"), DeviceFile("/dev/g", "/dev/fuse", "w")) == []


# The file again by another path of the host, by a link, as the only file in a directory; and what else may be at a device's place.
FILES = {
    **HOST_DEVICES,
    "/dev/link": (FUSE,),
    "/dev/given": (HostDevice("fuse", "c", 10, 229, 0o660, 0, 44),),
    "/dev/block": (HostDevice("", "b", 10, 229, 0o660, 0, 0),),
}
AT = "/dev/given/fuse"
THE_FILE = [
    DeviceFile(AT, "/dev/fuse", "r"),
    DeviceFile(f"/{AT}/", "/dev/fuse", "rwm"),
    DeviceFile(AT, "/dev/link", "w"),
    DeviceFile("/dev/given", "/dev/given", "r"),
    ContainerMount(AT, "/dev/fuse", True),
    ContainerMount(AT, "/dev/given/fuse", False),
]
ANOTHER = [DeviceFile(AT, "/dev/disk", "rw"), DeviceFile(AT, "/dev/block", "rw"), ContainerMount(AT, "/srv", True)]


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in THE_FILE for b in THE_FILE if isinstance(a, DeviceFile)])
def test_one_file_at_one_path_is_one_whatever_names_it(one: Thing, other: Thing) -> None:
    made = adjustment(edits(one, other), FILES)
    assert [(d.path, d.major, d.minor) for d in made.linux.devices] == [(AT, 10, 229)]
    assert not made.mounts
    asked = {letter for thing in (one, other) if isinstance(thing, DeviceFile) for letter in thing.permissions}
    denied = {letter for rule in made.linux.resources.devices if not rule.allow for letter in rule.access}
    allowed = {letter for rule in made.linux.resources.devices if rule.allow for letter in rule.access}
    assert ({"r", "w"} - denied) | allowed == asked


@pytest.mark.parametrize("another", ANOTHER)
@pytest.mark.parametrize("one", THE_FILE)
def test_another_thing_at_its_path_is_refused(one: Thing, another: Thing) -> None:
    for order in (one, another), (another, one):
        with pytest.raises(InjectionRefused, match=f"are both at {AT} in the container; fix one of the device plugins"):
            adjustment(edits(*order), {**FILES, "/srv": ()})


@pytest.mark.parametrize("path", ["dev/f", "-/dev/f", "./dev/f"])
def test_a_relative_path_begins_at_the_containers_root(path: str) -> None:
    """Also one that begins with -, by which NRI removes what is at the rest of the path."""
    given = edits(DeviceFile(path, "/dev/fuse", "rw"), ContainerMount(f"{path}-m", "/srv", True))
    made = adjustment(given, HOST_DEVICES)
    absolute = f"/{path.removeprefix('./')}"
    assert [d.path for d in made.linux.devices] == [absolute]
    assert [m.destination for m in made.mounts] == [f"{absolute}-m"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (FileRules(), (0o660, 0, 44)),
        (FileRules(DeviceOwner(1000, 0)), (0o660, 1000, 44)),
        (FileRules(DeviceOwner(0, 1000)), (0o660, 0, 1000)),
        (FileRules(DeviceOwner(1000, 2000), has_mode=False), (None, 1000, 2000)),
    ],
)
def test_owner_and_mode(rules: FileRules, expected: tuple[int | None, int, int]) -> None:
    given = edits(DeviceFile("/dev/f", "/dev/fuse", "rw"), DeviceFile("/dev/given", "/dev/given", "rw"))
    for made in adjustment(given, FILES, rules).linux.devices:
        mode = made.file_mode.value if made.HasField("file_mode") else None
        assert (mode, made.uid.value, made.gid.value) == expected


@pytest.mark.parametrize(
    ("user", "closed"),
    [
        (api_pb2.User(uid=1000, gid=1000), "/dev/f"),
        (api_pb2.User(uid=1000, gid=44), None),
        (api_pb2.User(uid=1000, gid=1000, additional_gids=[20, 44]), None),
        (api_pb2.User(gid=1000), None),
        (api_pb2.User(), None),
    ],
)
def test_a_file_that_the_containers_user_cannot_open(user: api_pb2.User, closed: str | None) -> None:
    given = edits(DeviceFile("/dev/f", "/dev/fuse", "rw"), DeviceFile("/dev/s", "/dev/snd", "rw"))
    found = closed_file(adjustment(given, HOST_DEVICES), user)
    assert (found and found.path) == closed
    assert closed_file(adjustment(given, HOST_DEVICES, FileRules(DeviceOwner(1000))), user) is None
    assert closed_file(adjustment(given, HOST_DEVICES, FileRules(has_mode=False)), user) is None


@pytest.mark.parametrize(
    ("mode", "remedy"),
    [
        (0o660, "supplementalGroups: [20] in the pod, the group of the host's file; or --device-ownership container"),
        (0o620, "supplementalGroups: [20] in the pod, the group of the host's file; or --device-ownership container"),
        (0o600, "--device-ownership container"),
    ],
)
def test_what_opens_a_closed_file(mode: int, remedy: str) -> None:
    file = api_pb2.LinuxDevice(gid=api_pb2.OptionalUInt32(value=20), file_mode=api_pb2.OptionalFileMode(value=mode))
    assert how_to_open(file) == remedy


def rule(allow: bool, access: str, kind: str = "a", *numbers: int) -> api_pb2.LinuxDeviceCgroup:
    """numbers: major and minor, as far as the rule has them."""
    found = api_pb2.LinuxDeviceCgroup(allow=allow, type=kind, access=access)
    for field, number in zip((found.major, found.minor), numbers, strict=False):
        field.value = number
        field.SetInParent()
    return found


NOTHING = rule(False, "rwm")


@pytest.mark.parametrize(
    ("before", "denied"),
    [
        ([], "w"),
        ([NOTHING], "w"),
        ([NOTHING, rule(True, "rw", "c", 10, 229)], ""),
        ([NOTHING, rule(True, "w", "c", 10)], ""),
        ([rule(True, "rwm", "")], ""),
        ([rule(True, "rwm", "a", -1, -1)], ""),
        ([NOTHING, rule(True, "rw", "c", 10, 228), rule(True, "rw", "b", 10, 229)], "w"),
        ([rule(True, "rwm"), NOTHING], "w"),
        ([rule(True, "rwm"), rule(False, "w", "c", 10, 229)], "w"),
    ],
)
def test_what_a_container_may_do_already_is_not_taken(before: list[api_pb2.LinuxDeviceCgroup], denied: str) -> None:
    """The kubelet's own devices, and a privileged container, come before what a plugin asks for."""
    shown = api_pb2.Container(linux=api_pb2.LinuxContainer(resources=api_pb2.LinuxResources(devices=before)))
    made = adjustment(edits(DeviceFile("/dev/f", "/dev/fuse", "r")), HOST_DEVICES, shown=shown)
    assert "".join(r.access for r in made.linux.resources.devices if not r.allow) == denied


def test_annotations_of_kubelet_and_runtime_stay() -> None:
    """The kubelet's come over a plugin's, too, and the runtime knows the container's sandbox by one."""
    own = {"io.kubernetes.container.hash": "1", "io.kubernetes.cri.sandbox-id": "s", CONTAINER_DEVICES_ANNOTATION: "x"}
    plugins = dict.fromkeys([*own, "vendor.com/a"], "plugin")
    made = adjustment(edits(annotations=plugins), {}, shown=api_pb2.Container(annotations=own))
    assert dict(made.annotations) == {"vendor.com/a": "plugin", CONTAINER_DEVICES_ANNOTATION: "plugin"}


@pytest.mark.kubelet("weak spot 23")
@pytest.mark.parametrize(
    ("wanted", "named"),
    [
        (edits(ContainerMount("/", "/srv", True)), "/srv over /"),
        (edits(ContainerMount("/a/../.", "/srv", True)), "/srv over /"),
        (edits(ContainerMount("", "/srv", True)), "/srv over /"),
        (edits(ContainerMount("/data", "srv", True)), "'srv'"),
        (edits(ContainerMount("/da\0ta", "/srv", True)), "zero byte"),
        (edits(ContainerMount("/data", "/srv\0", True)), "absolute path"),
        (edits(ContainerMount("/data", "/x", True), ContainerMount("/data", "/y", True)), "/x and the mount of /y"),
        (edits(ContainerMount("/data", "/x", True), ContainerMount("//data/./", "/y", True)), "both at /data"),
        (edits(DeviceFile("/", "/dev/fuse", "rw")), "/dev/fuse over /"),
        (edits(DeviceFile("/dev/f", "/dev/fuse", "rx")), "permissions 'rx'"),
        (edits(envs={"-PATH": ""}), "'-PATH'"),
        (edits(envs={"A=B": "x"}), "'A=B'"),
        (edits(envs={"A\0": "x"}), "'A\\x00' cannot be the name of an environment variable; "),
        (edits(envs={"A": "x\0"}), "A has a zero byte"),
        (edits(annotations={"-a": "x"}), "'-a' cannot be the name of an annotation; "),
        (edits(annotations={"a": "\0"}), "annotation a has a zero byte in its value; "),
        (edits(annotations={"cdi.k8s.io/a": "x" * 201}), f"'{'x' * 200}…' is not a list of CDI devices"),
        (
            edits(annotations={"cdi.k8s.io/a": "v/c=d,"}),
            "annotation cdi.k8s.io/a: 'v/c=d,' is not a list of CDI devices",
        ),
    ],
)
def test_refused_by_name(wanted: ContainerEdits, named: str) -> None:
    with pytest.raises(InjectionRefused) as caught:
        adjustment(wanted, HOST_DEVICES)
    assert named in str(caught.value)
    assert "fix " in str(caught.value)
