import pytest
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused, DeviceNode, Mount
from nodedevice_agent.plugins.generic.devices import GenericDevice, allocate
from nodedevice_agent.plugins.generic.devices import generic_devices as devices_of
from nodedevice_agent.plugins.generic.found import Found, FoundFile
from nodedevice_agent.plugins.generic.offers import choose
from nodedevice_agent.plugins.generic.settings import GroupSettings, PathSettings

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


def test_plain_files_count_only_where_allowed_and_are_mounted() -> None:
    found = {"/dev/x": plain("/dev/x", is_device=False)}
    assert generic_devices([group("/dev/x")], found) == {}
    (device,) = generic_devices([group("/dev/x", allow_files=True)], found).values()
    assert device.allocation.mounts == (Mount("/dev/x", "/dev/x", False),)
    assert device.allocation.device_nodes == ()
    read_only = GroupSettings([PathSettings("/dev/x", permissions="r")], allow_files=True)
    (device,) = generic_devices([read_only], found).values()
    assert device.allocation.mounts == (Mount("/dev/x", "/dev/x", True),)


def test_numa_nodes_of_all_files() -> None:
    found = {"/dev/a*": matches("/dev/a*", "0", numa_nodes=(1,)), "/dev/b*": matches("/dev/b*", "0", numa_nodes=(0,))}
    assert generic_devices([group("/dev/a*", "/dev/b*")], found)["a0"].listed.numa_nodes == (0, 1)


def test_shares_of_one_device_give_its_files_once() -> None:
    devices = generic_devices([group("/dev/fuse", count=3)], {"/dev/fuse": plain("/dev/fuse")})
    allocation = allocate(NAME, devices, ["fuse::2", "fuse::0"])
    assert allocation.device_nodes == (DeviceNode("/dev/fuse", "/dev/fuse", "rw"),)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        pytest.param(
            [
                GroupSettings([PathSettings("/dev/a", "/dev/camera")]),
                GroupSettings([PathSettings("/dev/b", "/dev/camera")]),
            ],
            "end mountPath with /",
            id="one path in the container",
        ),
        pytest.param(
            [group("/dev/a", env={"KIND": "a"}), group("/dev/b", env={"KIND": "b"})], "KIND", id="one variable"
        ),
    ],
)
def test_devices_that_cannot_be_together_in_a_container(groups: list[GroupSettings], why: str) -> None:
    devices = generic_devices(groups, {"/dev/a": plain("/dev/a"), "/dev/b": plain("/dev/b")})
    assert allocate(NAME, devices, ["b"]).device_nodes[0].host_path == "/dev/b"
    with pytest.raises(AllocationRefused, match=why):
        allocate(NAME, devices, ["a", "b"])
