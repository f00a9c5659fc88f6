"""When NVML is closed on request, and what the watch of the GPUs makes of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib import filesystem
from nodedevice_agent.lib.deviceplugin_server.values import AllocationRefused
from nodedevice_agent.plugins.nvml.driver_release import (
    closed_file,
    is_requested,
    released_by_label,
    request,
    request_file,
)
from nodedevice_agent.plugins.nvml.driver_troubles import Trouble
from nodedevice_agent.plugins.nvml.settings import GPU_CLIENT_LABEL

from tests.fakes.gpu_watch import BOTH, BROKEN, END, FINE, Node, Play
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.plugins.nvml.sources import SOMEBODY, Served, place
from tests.unit.node_agent.plugins.nvml.test_cdi_choice import A, B
from tests.unit.node_agent.plugins.nvml.test_cdi_choice import host as host

INFORMATION = "Model: \t\t T4\nGPU UUID: \t {}\nBus Location: \t {}\nDevice Minor: \t {}\nGPU Excluded:\t No\n"


@pytest.mark.parametrize(
    ("value", "is_released"),
    [("", False), ("true", False), ("false", True), ("paused-for-driver-upgrade", True), ("True", True)],
)
def test_values_of_the_label(value: str, is_released: bool) -> None:
    """As a node selector of the value true, but for no value: k8s-driver-manager writes that in place of no label."""
    message = released_by_label(value)
    assert bool(message) is is_released
    assert not message or f"{GPU_CLIENT_LABEL}={value}," in message


class TestTheCommandsFile:
    def test_counts_for_one_boot(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        request(tmp_path)
        monkeypatch.setattr(filesystem, "boot_id", lambda: "another")
        assert not is_requested(tmp_path)
        request(tmp_path)
        assert is_requested(tmp_path)

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"x" * 100_000, None])
    def test_of_another_content_counts_for_nothing(self, tmp_path: Path, content: bytes | None) -> None:
        file = request_file(tmp_path)
        file.parent.mkdir()
        file.mkdir() if content is None else file.write_bytes(content)
        assert not is_requested(tmp_path)

    def test_a_confirmation_of_an_earlier_request_does_not_count(self, tmp_path: Path) -> None:
        file = closed_file(tmp_path)
        file.parent.mkdir()
        file.touch()
        request(tmp_path)
        assert not file.exists()
        file.touch()
        request(tmp_path)
        assert file.exists(), "the driver is closed already"


async def label(node: Node, value: str = "paused-for-driver-upgrade") -> None:
    """The Node gets this label, and the watch sees it."""
    node.labels.are({GPU_CLIENT_LABEL: value})
    await asyncio.sleep(0.1)


class TestTheWatch:
    @virtual_time
    async def test_ends_its_readers_and_begins_again(self, play: Play) -> None:
        node = await play([BOTH, FINE], [BOTH, FINE])
        assert not closed_file(node.state).exists()
        await label(node)
        assert (node.unhealthy, node.trouble, node.reader.ends) == ({"GPU-1", "GPU-2"}, "DriverReleased", 1)
        assert closed_file(node.state).exists()
        await asyncio.sleep(1000)
        assert len(node.readers) == 1
        await label(node, "true")
        assert (node.unhealthy, node.trouble, len(node.readers)) == (set(), "", 2)
        assert not closed_file(node.state).exists()

    @pytest.mark.parametrize("script", [[BROKEN, END], [BOTH, FINE, END], [20, BOTH]])
    @virtual_time
    async def test_does_so_in_each_state(self, play: Play, script: list[Any]) -> None:
        """While it waits before the next reader, and while a reader has not reported yet."""
        node = await play(script, *[[BOTH, FINE]] * 3, rescanSeconds=30)
        await asyncio.sleep(0.1)
        await label(node)
        assert closed_file(node.state).exists()
        await asyncio.sleep(100)
        assert node.trouble == "DriverReleased"
        assert len(node.readers) == 1

    @virtual_time
    async def test_begins_closed_where_it_was_requested_before(self, play: Play) -> None:
        node = await play([BOTH, FINE], labels={GPU_CLIENT_LABEL: "false"})
        await asyncio.sleep(100)
        assert (node.readers, node.trouble) == ([], "DriverReleased")
        await label(node, "")
        assert node.trouble == ""

    @virtual_time
    async def test_follows_the_numbers_of_a_driver_that_is_loaded_again(self, play: Play) -> None:
        node = await play([BOTH, FINE], handOver=["deviceNodes"])
        for path in ("/dev/nvidia0", "/dev/nvidia1"):
            place(node.host, path).symlink_to("/dev/null")
        await label(node)
        (source_of_all,) = node.sources.values()
        assert all(device.files for device in source_of_all.devices.latest)
        for number, gpu in enumerate(reversed(BOTH.gpus)):
            information = place(node.host, f"/proc/driver/nvidia/gpus/{gpu.pci_bus_id}/information")
            information.write_text(INFORMATION.format("GPU-????????", gpu.pci_bus_id, number))
        await asyncio.sleep(6)
        assert not any(device.files for device in source_of_all.devices.latest)

    @virtual_time
    async def test_tells_no_more_than_is_true_of_a_reader_that_hangs(self, play: Play) -> None:
        node = await play([BOTH, FINE], [BOTH, FINE])
        node.reader.has_ended = False
        await label(node)
        await asyncio.sleep(100)
        assert (node.trouble, closed_file(node.state).exists()) == ("DriverHangs", False)
        node.reader.gone.set()
        await asyncio.sleep(0.1)
        assert (node.trouble, closed_file(node.state).exists()) == ("DriverReleased", True)

    @virtual_time
    async def test_goes_on_where_it_cannot_confirm(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        node = await play([BOTH, FINE], [BOTH, FINE])
        closed_file(node.state).parent.mkdir(parents=True, exist_ok=True)
        closed_file(node.state).symlink_to(node.state / "nowhere/closed")
        await label(node)
        assert "cannot confirm that NVML is closed" in caplog.text
        await label(node, "")
        assert node.trouble == ""


@pytest.mark.parametrize("uuids", [("GPU-a", "GPU-b"), ("GPU-????????-????-????-????-????????????",) * 2])
def test_a_driver_that_was_loaded_again_has_other_numbers(host: Path, uuids: tuple[str, str]) -> None:
    """NVML is not read yet: no container gets another GPU's device file."""
    served = Served(host, A, B, handOver=["deviceNodes"])
    source = served.source
    files = [device.files for device in source.devices.latest]
    served.fleet.unread(Trouble("DriverReleased", "NVML is closed"))
    served.publish()
    assert source.devices.trouble == ("DriverReleased", "NVML is closed (DriverReleased)")
    for numbers, expected in (((0, 1), files), ((1, 0), [(), ()]), ((0, 1), files)):
        for gpu, uuid, number in zip((A, B), uuids, numbers, strict=True):
            path = f"/proc/driver/nvidia/gpus/{gpu.pci_bus_id}/information"
            place(host, path).write_text(INFORMATION.format(uuid, gpu.pci_bus_id, number))
        served.publish()
        assert [device.files for device in source.devices.latest] == expected
        if expected == files:
            assert source.allocate(["GPU-a"], SOMEBODY).device_nodes[0].host_path == "/dev/nvidia0"
        else:
            with pytest.raises(AllocationRefused, match="does not report the device file of GPU-a"):
                source.allocate(["GPU-a"], SOMEBODY)
