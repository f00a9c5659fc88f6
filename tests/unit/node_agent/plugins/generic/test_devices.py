import fnmatch
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, DeviceNode, Mount
from nodedevice_agent.plugins.generic.devices import GenericDevice, allocate
from nodedevice_agent.plugins.generic.devices import generic_devices as devices_of
from nodedevice_agent.plugins.generic.found import Found, FoundFile
from nodedevice_agent.plugins.generic.offers import choose
from nodedevice_agent.plugins.generic.settings import GroupSettings, MountSettings, PathSettings
from nodedevice_agent.plugins.patterns import matched, wildcard_count

NAME = "example.com/camera"


def matches(template: str, *captures: str, numa_nodes: tuple[int, ...] = ()) -> list[FoundFile]:
    return [FoundFile(template.replace("*", capture), (capture,), True, numa_nodes) for capture in captures]


def plain(path: str, is_device: bool = True) -> list[FoundFile]:
    return [FoundFile(path, (), is_device)]


def group(
    *patterns: str, count: int = 1, allow_files: bool = False, env: dict[str, str] | None = None
) -> GroupSettings:
    return GroupSettings([PathSettings(pattern) for pattern in patterns], count, [], env or {}, allow_files)


def generic_devices(groups: list[GroupSettings], found: Found, *, are_parts: bool = False) -> dict[str, GenericDevice]:
    return devices_of(groups, choose(groups, found, {}).listed, are_parts=are_parts)


def test_each_match_is_a_device() -> None:
    found = {"/dev/video*": matches("/dev/video*", "1", "0")}
    assert list(generic_devices([group("/dev/video*")], found)) == ["video0", "video1"]


def test_shares_can_be_parts_of_their_device() -> None:
    found = {"/dev/video*": matches("/dev/video*", "0"), "/dev/fuse": plain("/dev/fuse")}
    groups = [group("/dev/video*", count=2), group("/dev/fuse")]
    parts = generic_devices(groups, found, are_parts=True)
    assert {name: device.listed.parent for name, device in parts.items()} == {
        "fuse::0": "fuse",
        "video0::0": "video0",
        "video0::1": "video0",
    }
    plain_ones = generic_devices(groups, found)
    assert {name: device.listed.parent for name, device in plain_ones.items()} == {
        "fuse": "",
        "video0::0": "",
        "video0::1": "",
    }


def test_no_file_no_device() -> None:
    assert generic_devices([group("/dev/video*"), group("/dev/fuse")], {}) == {}


def test_wildcard_paths_are_joined_by_what_they_match() -> None:
    found = {"/dev/video*": matches("/dev/video*", "0", "2"), "/dev/media*": matches("/dev/media*", "1", "2")}
    devices = generic_devices([group("/dev/video*", "/dev/media*")], found)
    assert list(devices) == ["video2"]
    assert [node.host_path for node in devices["video2"].allocation.device_nodes] == ["/dev/video2", "/dev/media2"]


def test_plain_paths_belong_to_each_device_and_must_be_there() -> None:
    videos = matches("/dev/video*", "0", "1")
    both = group("/dev/codec", "/dev/video*")
    devices = generic_devices([both], {"/dev/video*": videos, "/dev/codec": plain("/dev/codec")})
    assert list(devices) == ["video0", "video1"], "named after what differs"
    assert all(len(device.allocation.device_nodes) == 2 for device in devices.values())
    assert generic_devices([both], {"/dev/video*": videos}) == {}


def test_a_file_of_two_groups_belongs_to_the_first() -> None:
    found = {"/dev/tty*": matches("/dev/tty*", "USB0"), "/dev/ttyUSB*": matches("/dev/ttyUSB*", "0", "1")}
    devices = generic_devices([group("/dev/tty*", env={"G": "1"}), group("/dev/ttyUSB*", env={"G": "2"})], found)
    assert {name: device.allocation.env["G"] for name, device in devices.items()} == {"ttyUSB0": "1", "ttyUSB1": "2"}


def test_plain_files_count_only_where_allowed_and_are_mounted() -> None:
    found = {"/dev/x": plain("/dev/x", is_device=False)}
    assert generic_devices([group("/dev/x")], found) == {}
    (device,) = generic_devices([group("/dev/x", allow_files=True)], found).values()
    assert device.allocation.mounts == (Mount("/dev/x", "/dev/x", False),)
    assert device.allocation.device_nodes == ()
    read_only = GroupSettings([PathSettings("/dev/x", permissions="r")], allow_files=True)
    (device,) = generic_devices([read_only], found).values()
    assert device.allocation.mounts == (Mount("/dev/x", "/dev/x", True),)


def test_mounts_of_a_group_go_with_each_device() -> None:
    mounts = [MountSettings("/run/a"), MountSettings("/run/b", "/c", True)]
    devices = generic_devices([GroupSettings([PathSettings("/dev/x")], mounts=mounts)], {"/dev/x": plain("/dev/x")})
    assert devices["x"].allocation.mounts == (Mount("/run/a", "/run/a"), Mount("/run/b", "/c", True))


def test_numa_nodes_of_all_files() -> None:
    found = {
        "/dev/a*": matches("/dev/a*", "0", numa_nodes=(1,)),
        "/dev/b*": matches("/dev/b*", "0", numa_nodes=(0,)),
    }
    assert generic_devices([group("/dev/a*", "/dev/b*")], found)["a0"].listed.numa_nodes == (0, 1)


def test_shares_of_one_device_give_its_files_once() -> None:
    devices = generic_devices([group("/dev/fuse", count=3)], {"/dev/fuse": plain("/dev/fuse")})
    allocation = allocate(NAME, devices, ["fuse::2", "fuse::0"])
    assert allocation.device_nodes == (DeviceNode("/dev/fuse", "/dev/fuse", "rw"),)


@pytest.mark.parametrize(
    ("container_path", "places"),
    [
        pytest.param("", ["/dev/video0", "/dev/video1"], id="same path"),
        pytest.param("/cameras/", ["/cameras/video0", "/cameras/video1"], id="in a directory"),
    ],
)
def test_paths_in_the_container(container_path: str, places: list[str]) -> None:
    groups = [GroupSettings([PathSettings("/dev/video*", container_path)])]
    devices = generic_devices(groups, {"/dev/video*": matches("/dev/video*", "0", "1")})
    assert [node.container_path for node in allocate(NAME, devices, devices).device_nodes] == places


def test_two_devices_with_one_container_path_are_rejected() -> None:
    groups = [GroupSettings([PathSettings("/dev/video*", "/dev/camera")])]
    devices = generic_devices(groups, {"/dev/video*": matches("/dev/video*", "0", "1")})
    assert allocate(NAME, devices, ["video1"]).device_nodes[0].container_path == "/dev/camera"
    with pytest.raises(AllocationRefused, match="end mountPath with /"):
        allocate(NAME, devices, ["video0", "video1"])


def test_conflicting_environments_are_rejected() -> None:
    groups = [group("/dev/a", env={"KIND": "a"}), group("/dev/b", env={"KIND": "b"})]
    devices = generic_devices(groups, {"/dev/a": plain("/dev/a"), "/dev/b": plain("/dev/b")})
    with pytest.raises(AllocationRefused, match="KIND"):
        allocate(NAME, devices, ["a", "b"])


@pytest.mark.parametrize(
    ("pattern", "name", "expected"),
    [
        ("ttyUSB*", "ttyUSB12", ("12",)),
        ("ttyUSB*", "ttyUSB", ("",)),
        ("ttyUSB*", "ttyACM0", None),
        ("tty?", "tty7", ("7",)),
        ("tty?", "tty", None),
        ("tty[0-3]", "tty2", ("2",)),
        ("tty[!0-3]", "tty2", None),
        ("tty[!0-3]", "tty4", ("4",)),
        ("a[]]b", "a]b", ("]",)),
        ("a[z-a]", "ab", None),
        ("a[!z-a]", "ab", ("b",)),
        ("a[z-a!]", "a!", ("!",)),
        ("a[z-a!]", "ab", None),
        ("a[x", "a[x", ()),
        ("*-*", "a-b", ("a", "b")),
        ("plain.name", "plainxname", None),
        ("*", ".hidden", None),
        (".*", ".hidden", ("hidden",)),
        ("*", "line\nbreak", ("line\nbreak",)),
    ],
)
def test_what_wildcards_match(pattern: str, name: str, expected: tuple[str, ...] | None) -> None:
    assert matched(pattern, name) == expected


@pytest.mark.parametrize(
    ("pattern", "count"), [("/dev/fuse", 0), ("/dev/tty*", 1), ("/dev/snd?/c[0-9]*", 3), ("/dev/a[", 0)]
)
def test_wildcard_count(pattern: str, count: int) -> None:
    assert wildcard_count(pattern) == count


def is_misread_by_fnmatch(pattern: str) -> bool:
    """Python drops the empty range of [b-a!], and takes the ! for a negation then; bash and glibc do not."""
    return any(first > last for first, last in re.findall(r"\[(.)-(.)!", pattern))


@given(
    st.text(st.sampled_from("ab-]![*?^\\."), max_size=6).filter(lambda pattern: not is_misread_by_fnmatch(pattern)),
    st.text(st.sampled_from("ab-]![^\\."), max_size=5),
)
def test_agrees_with_the_shells_rules(pattern: str, name: str) -> None:
    if name.startswith(".") and not pattern.startswith("."):
        assert matched(pattern, name) is None
    else:
        assert (matched(pattern, name) is not None) == fnmatch.fnmatchcase(name, pattern)
