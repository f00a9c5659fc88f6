"""What an older agent has stored: IDs by vendor and port, and by whichever link was found, held and cordoned, go on to count."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources import availability
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.names import Reason

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.sysfs import FakeSysfs

# written by the release before IDs by port alone
STORED = Path(__file__).parents[2] / "unit/node_agent/checkpoint/checkpoints/agent-with-ids-by-port.json"
STICK, CAMERA, OTHER = "example.com/stick", "example.com/camera", "example.com/other"
HELD, CORDONED = "1a6e-089a-port-2-1", "1a6e-089a-port-2-2"
LINK = "v4l-by-path-pci-0000-00-14.0-usbv2-0-5-1.0-video-i-39409049"


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    """Two sticks without serials in two ports, and a camera with two links."""
    found = FakeSysfs(tmp_path / "h")
    for number, port in enumerate(("2-1", "2-2")):
        plug(found, port, number, "1a6e", "089a")
    camera = found.usb("1-5", "046d", "0825")
    found.node(f"{camera}/1-5:1.0/video4linux/video0", "video4linux", "81:0", parent=f"{camera}/1-5:1.0")
    for bus in ("usb", "usbv2"):
        found.link(f"/dev/v4l/by-path/pci-0000:00:14.0-{bus}-0:5:1.0-video-index0", "/dev/video0")
    return found


def plug(host: FakeSysfs, port: str, number: int, vendor: str, product: str) -> None:
    usb = host.usb(port, vendor, product)
    place = f"{usb}/{port}:1.0/ttyUSB{number}"
    host.node(f"{place}/tty/ttyUSB{number}", "tty", f"188:{number}", parent=place)


def settings(host: FakeSysfs, **groups: Any) -> PluginSettings:
    generic = [{"resourceName": f"example.com/{name}", "groups": [group]} for name, group in groups.items()]
    return convert({"generic": generic, "hostRoot": str(host.root)}, PluginSettings)


BY_PORT = {"select": {"usb": {"port": "2-*"}, "subsystems": ["tty"]}}
BY_PATH = {"paths": [{"path": "/dev/v4l/by-path/*-video-index0"}]}


@pytest.fixture
async def node(host: FakeSysfs, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostedManager]:
    folder = tmp_path_factory.mktemp("n")
    shutil.copy(STORED, folder / FILE_NAME)
    async with hosted(folder, [pod("pod-a", STICK), pod("pod-b", CAMERA)]) as found:
        found.configure(settings(host, stick=BY_PORT, camera=BY_PATH))
        await found.until(lambda: all(found.manager.resources[name].is_live for name in (STICK, CAMERA)))
        yield found


def pod(uid: str, resource_name: str) -> Pod:
    return Pod(uid, "default", uid, (Container("main", limits={resource_name: 1}),))


def shown(node: HostedManager, name: str) -> dict[str, str]:
    """What is said of each listed device: held by whom, cordoned, or why it is not healthy."""
    resource = node.manager.resources[name]
    healthy = {i for i in resource.devices if availability.is_healthy(resource, i)}
    return {
        i: resource.use.holders.get(i)
        or ("cordoned" if resource.use.is_cordoned(i) else "" if i in healthy else Reason.IN_OTHER_USE)
        for i in resource.devices
    }


async def test_held_and_cordoned_ids_stay_and_are_offered_once(node: HostedManager) -> None:
    assert shown(node, STICK) == {HELD: "pod-a", CORDONED: "cordoned"}
    assert shown(node, CAMERA) == {LINK: "pod-b"}
    assert (node.available(STICK), node.available(CAMERA)) == (0, 0)


async def test_the_container_of_that_pod_starts_with_its_device(node: HostedManager) -> None:
    """Its answer is of this boot, and still names the device's file."""
    resource = node.manager.resources[STICK]
    (allocation,) = node.manager.book.of_resource(STICK)
    assert allocation.response is not None
    reported = resource.reported(HELD)
    assert reported is not None
    assert dict(reported.files) == {"/dev/ttyUSB0": "c188:0"}


async def test_no_other_resource_gets_them(node: HostedManager, host: FakeSysfs) -> None:
    await configure(node, settings(host, stick=BY_PORT, camera=BY_PATH, other={"paths": [{"path": "/dev/ttyUSB*"}]}))
    assert shown(node, OTHER) == {"ttyUSB0": Reason.IN_OTHER_USE, "ttyUSB1": Reason.IN_OTHER_USE}
    # nor where the first one is taken out of the configuration
    await configure(node, settings(host, camera=BY_PATH, other={"paths": [{"path": "/dev/ttyUSB*"}]}))
    await node.until(lambda: not node.manager.resources[STICK].is_live)
    assert shown(node, OTHER) == {"ttyUSB0": Reason.IN_OTHER_USE, "ttyUSB1": Reason.IN_OTHER_USE}
    node.manager.table.cordoned(STICK, "uid-1", {})
    node.host.settle()
    assert shown(node, OTHER) == {"ttyUSB0": Reason.IN_OTHER_USE, "ttyUSB1": ""}


async def test_a_stick_that_changes_its_firmware_stays_the_pods(node: HostedManager, host: FakeSysfs) -> None:
    """Its stored ID has the vendor that it had."""
    host.unplug("2-1")
    plug(host, "2-1", 0, "18d1", "9302")
    other = {"select": {"usb": {"vendor": "18d1"}, "subsystems": ["tty"]}}
    await configure(node, settings(host, stick={**BY_PORT, "env": {"AGAIN": "1"}}, camera=BY_PATH, other=other))
    await node.until(lambda: "18d1-9302-port-2-1" in shown(node, OTHER))
    assert shown(node, STICK)[HELD] == "pod-a"
    assert shown(node, OTHER) == {"18d1-9302-port-2-1": Reason.IN_OTHER_USE}
    assert (node.available(STICK), node.available(OTHER)) == (0, 0)


async def configure(node: HostedManager, wanted: PluginSettings) -> None:
    node.configure(wanted)
    names = [generic.resource_name for generic in wanted.generic]
    await node.until(lambda: all(n in node.manager.resources and node.manager.resources[n].is_live for n in names))
