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


def group(*paths: str, count: int = 1, allow_files: bool = False, env: dict[str, str] | None = None) -> GroupSettings:
    return GroupSettings([PathSettings(each) for each in paths], count, [], env or {}, allow_files)


def generic_devices(groups: list[GroupSettings], found: Found, *, are_parts: bool = False) -> dict[str, GenericDevice]:
    return devices_of(groups, choose(groups, found, {}).listed, are_parts=are_parts)


def parents(devices: dict[str, GenericDevice]) -> dict[str, str]:
    return {name: device.listed.parent for name, device in devices.items()}


def test_shares_can_be_parts_of_their_device() -> None:
    found = {"/dev/video*": matches("/dev/video*", "0"), "/dev/fuse": plain("/dev/fuse")}
    groups = [group("/dev/video*", count=2), group("/dev/fuse")]
    parts, whole = (parents(generic_devices(groups, found, are_parts=each)) for each in (True, False))
    assert parts == {"fuse::0": "fuse", "video0::0": "video0", "video0::1": "video0"}
    assert whole == {"fuse": "", "video0::0": "", "video0::1": ""}


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
    assert allocate(NAME, devices, ["fuse::2", "fuse::0"]).device_nodes == (DeviceNode("/dev/fuse", "/dev/fuse", "rw"),)


@pytest.mark.parametrize(
    ("groups", "why"),
    [
        pytest.param(
            [GroupSettings([PathSettings("/dev/a", "/dev/one")]), GroupSettings([PathSettings("/dev/b", "/dev/one")])],
            "end mountPath with /",
            id="one path in the container",
        ),
        pytest.param([group("/dev/a", env={"K": "a"}), group("/dev/b", env={"K": "b"})], "K", id="one variable"),
    ],
)
def test_devices_that_cannot_be_together_in_a_container(groups: list[GroupSettings], why: str) -> None:
    devices = generic_devices(groups, {"/dev/a": plain("/dev/a"), "/dev/b": plain("/dev/b")})
    assert allocate(NAME, devices, ["b"]).device_nodes[0].host_path == "/dev/b"
    with pytest.raises(AllocationRefused, match=why):
        allocate(NAME, devices, ["a", "b"])
