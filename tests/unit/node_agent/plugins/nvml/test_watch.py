"""What the watch of GPUs makes of each message of its reader, of the files it follows, and of a node without a driver."""

import asyncio
import json
import threading
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.plugins.nvml.boot_memory import Memory
from nodedevice_agent.plugins.nvml.health import ENERGY_SELDOM, Place
from nodedevice_agent.plugins.nvml.reader.messages import Alive, Changed, Described, EccError, ReaderOptions, Xid
from nodedevice_common.paced_log import SUBJECT_AT_ONCE

from tests.fakes.gpu_watch import ABSENT, BOTH, DIVIDED, END, FINE, LOST, OLD, ONE, TWO, Play
from tests.fakes.log_lines import log_lines
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.plugins.nvml.sources import place
from tests.unit.node_agent.plugins.nvml.test_cdi_choice import KIND, SPEC, of

pytestmark = virtual_time
GPU_1, GPU_2 = {"GPU-1"}, {"GPU-2"}
INSTANCES = "nvidia.com/mig-1g.10gb"


class TestMessages:
    async def test_an_inventory_is_served(self, play: Play) -> None:
        node = await play([BOTH, FINE], pollSeconds=7, callSeconds=3, libraryDir="/lib")
        assert node.served == {"nvidia.com/gpu": {"GPU-1": True, "GPU-2": True}}
        assert node.trouble == ""
        assert node.watch.wanted.get_nowait().resource_name == "nvidia.com/gpu"
        assert node.watch.wanted.empty()
        assert node.reader.options == ReaderOptions(7, 3, f"{node.host}/", "/lib")
        assert (node.state / "gpus/remembered.json").is_file()
        # nothing of it is wanted that it does not do by itself
        assert node.reader.orders == []

    @pytest.mark.parametrize(
        ("messages", "unhealthy"),
        [
            pytest.param([FINE, LOST], GPU_1, id="a reading"),
            pytest.param([FINE, LOST, FINE], set(), id="a later reading"),
            pytest.param([OLD, Xid("GPU-2", 79, 1)], GPU_2, id="an Xid"),
            pytest.param([OLD, Xid("", 79, 1)], set(), id="an Xid of no GPU"),
            pytest.param([OLD, Xid("GPU-2", 31, 1)], set(), id="an Xid of a program"),
            pytest.param([OLD, EccError("GPU-1")], GPU_1, id="an ECC error"),
            pytest.param([FINE, Alive(), Changed()], set(), id="signs of life"),
        ],
    )
    async def test_what_each_says_of_a_gpu(self, play: Play, messages: list[Any], unhealthy: set[str]) -> None:
        assert (await play([BOTH, *messages])).unhealthy == unhealthy

    async def test_an_instance_may_be_meant_alone(self, play: Play) -> None:
        node = await play([BOTH, OLD, DIVIDED, Xid("GPU-1", 79, 1, Place(8, 0))], mig="mixed")
        assert node.served == {"nvidia.com/gpu": {"GPU-2": True}, INSTANCES: {"MIG-1": True, "MIG-2": False}}

    async def test_a_resource_whose_devices_went_is_served_empty(self, play: Play) -> None:
        node = await play([BOTH, FINE, DIVIDED, 5, Described([ONE, TWO])], mig="mixed")
        assert node.served == {"nvidia.com/gpu": {"GPU-2": True}, INSTANCES: {"MIG-1": True, "MIG-2": True}}
        await asyncio.sleep(6)
        assert node.served == {"nvidia.com/gpu": {"GPU-1": True, "GPU-2": True}, INSTANCES: {}}
        # each resource was wanted once
        assert node.watch.wanted.qsize() == 2

    async def test_what_is_lacking_shows_in_the_list(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        lacking = Described([replace(ONE, not_supported=("ecc", "events")), replace(TWO, not_supported=("minor",))])
        node = await play([BOTH, FINE, lacking, 1, lacking])
        (devices,) = (source.devices.latest for source in node.sources.values())
        assert [dict(device.attributes)["notSupported"] for device in devices] == ["ecc,events", "minor"]
        expected = [
            ("INFO", "GPUs lack some features", {"not_supported": {"GPU-1": ("ecc", "events"), "GPU-2": ("minor",)}}),
            ("WARNING", "GPUs report no events; relying on polling", {"uuids": ["GPU-1"], "poll_seconds": 5.0}),
        ]
        assert log_lines(caplog.records)[1:] == expected
        await asyncio.sleep(2)
        # once
        assert log_lines(caplog.records)[1:] == expected

    async def test_the_reader_is_ordered_what_is_needed_each_time_that_changes(self, play: Play) -> None:
        # without a word of the driver, its energy counter shows that a GPU was reset
        lacking = Described([replace(gpu, not_supported=("recoveryAction",)) for gpu in (ONE, TWO)])
        xid = Xid("GPU-1", 79, 1)
        node = await play([BOTH, OLD, lacking, OLD, xid, OLD, OLD])
        seldom, marked = {"GPU-1": ENERGY_SELDOM, "GPU-2": ENERGY_SELDOM}, {"GPU-1": 0.0, "GPU-2": ENERGY_SELDOM}
        assert [each.energy for each in node.reader.orders] == [seldom, marked]

    async def test_xids_are_logged_so_many_times(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        await play([BOTH, OLD, *[Xid("GPU-1", 31, 5, Place(3, 0))] * 100])
        lines = [fields for _, message, fields in log_lines(caplog.records) if message == "GPU reported Xid"]
        assert [(fields["count"], fields["gpu_instance"]) for fields in lines] == [(5, 3)] * SUBJECT_AT_ONCE


class TestFiles:
    @pytest.mark.parametrize(
        ("folder", "name", "is_wanted"),
        [("dev", "nvidia0", True), ("dev", "nvidiactl", True), ("dev", "null", False), ("dev/shm", "nvidia0", False)],
    )
    async def test_a_device_file_has_gpus_read_again(self, play: Play, folder: str, name: str, is_wanted: bool) -> None:
        node = await play([BOTH, FINE, *[5, FINE] * 3])
        node.files[0].see(node.host / folder / name)
        await asyncio.sleep(20)
        assert [round(at) for at in node.reader.rescans] == ([5] if is_wanted else [])

    async def test_requests_to_clear_a_gpu(self, play: Play) -> None:
        node = await play([BOTH, OLD, Xid("GPU-1", 79, 1), Xid("GPU-2", 79, 1)])
        assert node.unhealthy == {"GPU-1", "GPU-2"}
        node.clear("GPU-1")
        node.clear("GPU-unknown")
        node.files[0].see()
        await asyncio.sleep(1)
        assert node.unhealthy == GPU_2
        assert list((node.state / "gpus/clear").iterdir()) == []

    async def test_specifications_are_followed_where_they_decide(self, play: Play) -> None:
        node = await play([BOTH, FINE], handOver=["auto"])

        def ways() -> list[str]:
            return [dict(device.attributes)["handOver"] for device in node.sources[KIND].devices.latest]

        assert ways() == ["env", "env"]
        # one without device files, as the made-up host has none
        place(node.host, SPEC).write_text(json.dumps({"cdiVersion": "0.5.0", "kind": KIND, "devices": [of("GPU-1")]}))
        node.files[1].see()
        await asyncio.sleep(1)
        assert ways() == ["cdi", "env"]


class TestNode:
    async def test_without_a_gpu_serves_nothing(self, play: Play) -> None:
        node = await play([ABSENT, END], is_plugged=False)
        assert node.served == {}
        assert node.watch.wanted.empty()


# a thread has the time of the machine
@pytest.mark.asyncio
async def test_what_is_remembered_is_written_beside_the_event_loop(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs must not hold anything else up."""
    threads: list[threading.Thread] = []
    monkeypatch.setattr(Memory, "write", lambda its, remembered: threads.append(threading.current_thread()))
    await play([BOTH, FINE])
    await until(lambda: bool(threads))
    assert threads[0] is not threading.main_thread()
