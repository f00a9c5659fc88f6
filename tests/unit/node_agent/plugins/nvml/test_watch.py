"""What the agent makes of each message of its reader, and of readers that end, fail, hang or have no driver to read."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nodedevice_agent.lib.deviceplugin_server.values import Delivery
from nodedevice_agent.plugins.nvml import watch
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.health import ENERGY_SELDOM, Place, Reading
from nodedevice_agent.plugins.nvml.mig import MigInstance
from nodedevice_agent.plugins.nvml.reader.messages import (
    Alive,
    Changed,
    Divided,
    EccError,
    Found,
    Lacking,
    Problem,
    ReaderOptions,
    Readings,
    Xid,
)
from nodedevice_agent.plugins.nvml.reader.process import ReaderFailed
from nodedevice_agent.plugins.nvml.source import HostOfGpus
from nodedevice_agent.plugins.nvml.watch import GpuWatch, has_gpu

from tests.fakes.background import background
from tests.fakes.gpu_watch import END, Node, Readers
from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import later, virtual_time

ONE, TWO = Gpu("GPU-1", "T4", 1 << 30, "0000:1a:00.0"), Gpu("GPU-2", "T4", 1 << 30, "0000:2a:00.0")
BOTH = Found("580.1", [ONE, TWO])
FINE = Readings({"GPU-1": Reading(recovery_action=0), "GPU-2": Reading(recovery_action=0)})
LOST = Readings({"GPU-1": Reading(is_lost=True)})
# without a word of the driver
OLD = Readings({"GPU-1": Reading(), "GPU-2": Reading()})
MIG = (MigInstance("MIG-1", "1g.10gb", 1, 0, 10000), MigInstance("MIG-2", "1g.10gb", 2, 0, 10000))
ABSENT = Problem("NoGpu", "the NVIDIA driver lists no GPU", is_absent=True)
BROKEN = Problem("DriverFailed", "the driver is broken")
GPU_1, GPU_2 = {"GPU-1"}, {"GPU-2"}


@pytest.fixture
async def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Begins a watch on a node with these scripts of its readers; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def begin(*scripts: list[Any], is_plugged: bool = True, **settings: Any) -> Node:
            node = Node(tmp_path, **settings)
            node.scripts = [*scripts]
            if is_plugged:
                node.plug()
            monkeypatch.setattr(watch, "Succession", lambda options: Readers(node, options))
            await stack.enter_async_context(background(node.make().run()))
            await later(0.01)
            return node

        yield begin


Play = Callable[..., Any]


class TestMessages:
    @virtual_time
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
    @virtual_time
    async def test_what_each_says_of_a_gpu(self, play: Play, messages: list[Any], unhealthy: set[str]) -> None:
        node = await play([BOTH, *messages])
        assert node.unhealthy == unhealthy

    @virtual_time
    async def test_an_instance_may_be_meant_alone(self, play: Play) -> None:
        divided = Divided({"GPU-1": MIG, "GPU-2": None})
        node = await play([BOTH, OLD, divided, Xid("GPU-1", 79, 1, Place(2, 0))], mig="mixed")
        assert node.served == {
            "nvidia.com/gpu": {"GPU-2": True},
            "nvidia.com/mig-1g.10gb": {"MIG-1": True, "MIG-2": False},
        }

    @virtual_time
    async def test_a_resource_whose_devices_went_is_served_empty(self, play: Play) -> None:
        divided = Divided({"GPU-1": MIG, "GPU-2": None})
        node = await play([BOTH, FINE, divided, 5, Divided({"GPU-1": None, "GPU-2": None})], mig="mixed")
        instances = "nvidia.com/mig-1g.10gb"
        assert node.served == {"nvidia.com/gpu": {"GPU-2": True}, instances: {"MIG-1": True, "MIG-2": True}}
        await asyncio.sleep(6)
        assert node.served == {"nvidia.com/gpu": {"GPU-1": True, "GPU-2": True}, instances: {}}
        # each resource was wanted once
        assert node.watch.wanted.qsize() == 2

    @virtual_time
    async def test_what_is_lacking_shows_in_the_list(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        lacking = Lacking({"GPU-1": ("ecc", "events"), "GPU-2": ("minor",)})
        node = await play([BOTH, FINE, lacking, 1, lacking])
        (devices,) = (source.devices.latest for source in node.watch._sources.values())
        assert [dict(device.attributes)["notSupported"] for device in devices] == ["ecc,events", "minor"]
        expected = [
            ("INFO", "GPUs lack some features", {"not_supported": {"GPU-1": ("ecc", "events"), "GPU-2": ("minor",)}}),
            ("WARNING", "GPUs report no events; relying on polling", {"uuids": ["GPU-1"], "poll_seconds": 5.0}),
        ]
        assert log_lines(caplog.records)[1:] == expected
        await asyncio.sleep(2)
        # once
        assert log_lines(caplog.records)[1:] == expected

    @virtual_time
    async def test_a_sign_of_life_publishes_nothing(self, play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
        published: list[bool] = []
        monkeypatch.setattr(GpuWatch, "_publish", lambda _: published.append(True))
        await play([BOTH, FINE, Alive(), Alive()])
        assert len(published) == 2

    @virtual_time
    async def test_the_reader_is_ordered_what_is_needed_each_time_that_changes(self, play: Play) -> None:
        # without a word of the driver, its energy counter shows that a GPU was reset
        lacking = Lacking({"GPU-1": ("recoveryAction",), "GPU-2": ("recoveryAction",)})
        xid = Xid("GPU-1", 79, 1)
        node = await play([BOTH, OLD, lacking, OLD, xid, OLD, OLD, BOTH, OLD, BROKEN, OLD])
        seldom, marked = {"GPU-1": ENERGY_SELDOM, "GPU-2": ENERGY_SELDOM}, {"GPU-1": 0.0, "GPU-2": ENERGY_SELDOM}
        # the last two to readers that have taken over
        assert [each.energy for each in node.reader.orders] == [seldom, marked, marked, marked]


class TestLog:
    @virtual_time
    async def test_of_changes(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("DEBUG", "nodedevice_agent.plugins.nvml.watch")
        divided = Divided({"GPU-1": None, "GPU-2": MIG})
        messages = [OLD, Xid("GPU-1", 79, 2), divided, Divided({"GPU-1": None, "GPU-2": None}), BOTH]
        node = await play([BOTH, *messages], mig="mixed")
        node.clear("GPU-1")
        node.files[0].see()
        await asyncio.sleep(1)
        found = {"gpus": 2, "driver": "580.1", "unnamed": []}
        lines = log_lines(caplog.records)
        text = lines[2][2].pop("error")
        assert "79" in text
        assert lines == [
            ("INFO", "GPUs found", found),
            (
                "WARNING",
                "GPU reported Xid",
                {"uuid": "GPU-1", "xid": 79, "meaning": "GPU has fallen off the bus", "count": 2},
            ),
            ("ERROR", "GPU is unhealthy", {"uuid": "GPU-1", "how": "", "reason": "Xid79"}),
            ("INFO", "GPU in MIG mode", {"uuid": "GPU-2", "profiles": ["1g.10gb", "1g.10gb"], "mig": "mixed"}),
            ("INFO", "GPU is not in MIG mode any more", {"uuid": "GPU-2"}),
            # the same ones
            ("DEBUG", "GPUs found", found),
            (
                "INFO",
                "GPU is healthy again or was removed",
                {"uuid": "GPU-1", "how": "an administrator cleared it"},
            ),
        ]

    @virtual_time
    async def test_of_xids_is_bounded(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        xid = Xid("GPU-1", 31, 5, Place(3, 0))
        await play([BOTH, OLD, xid, xid, 61, xid])
        await asyncio.sleep(62)
        lines = [fields for _, message, fields in log_lines(caplog.records) if message == "GPU reported Xid"]
        assert [fields["count"] for fields in lines] == [5, 10]
        assert [fields["gpu_instance"] for fields in lines] == [3, 3]

    @pytest.mark.parametrize(
        ("second", "level"),
        [
            (BOTH, "DEBUG"),
            (Found("580.2", [ONE, TWO]), "INFO"),
            (Found("580.1", [ONE]), "INFO"),
            (Found("580.1", [ONE, msgspec.structs.replace(TWO, uuid="GPU-3")]), "INFO"),
            (Found("580.1", [ONE, TWO], unnamed=["another"]), "INFO"),
            (Found("580.1", [TWO, ONE]), "DEBUG"),
        ],
    )
    @virtual_time
    async def test_an_inventory_like_the_last_one_is_no_news(
        self, play: Play, caplog: pytest.LogCaptureFixture, second: Found, level: str
    ) -> None:
        caplog.set_level("DEBUG", "nodedevice_agent.plugins.nvml.watch")
        await play([BOTH, second])
        assert [line[0] for line in log_lines(caplog.records) if line[1] == "GPUs found"] == ["INFO", level]

    @pytest.mark.parametrize(
        ("is_plugged", "line"),
        [
            (True, ("ERROR", "GPUs cannot be read", {"reason": "NoGpu", "error": ABSENT.message})),
            (False, ("INFO", "no GPU found; the nvml plugin is idle", {"reason": "NoGpu", "error": ABSENT.message})),
        ],
    )
    @virtual_time
    async def test_of_a_driver_that_cannot_be_read_is_once(
        self, play: Play, caplog: pytest.LogCaptureFixture, is_plugged: bool, line: Any
    ) -> None:
        caplog.set_level("INFO")
        await play([ABSENT, END], [ABSENT, END], is_plugged=is_plugged)
        await asyncio.sleep(400)
        lines = log_lines(caplog.records)
        assert lines == [line]

    @virtual_time
    async def test_gpus_that_are_back_are_news(self, play: Play, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        await play([BOTH, FINE, BROKEN, END], [BOTH, FINE])
        await asyncio.sleep(60)
        assert [line[:2] for line in log_lines(caplog.records)] == [
            ("INFO", "GPUs found"),
            ("ERROR", "GPUs cannot be read"),
            ("INFO", "GPUs found"),
        ]


class TestReaders:
    @pytest.mark.parametrize(
        ("scripts", "is_plugged", "started"),
        [
            pytest.param([[BOTH, FINE, END]] * 3, True, [0, 0.2, 0.6, 1.4], id="exits: a growing pause"),
            pytest.param([[BOTH, FINE, ReaderFailed("x")]] * 2, True, [0, 0.2, 0.6], id="fails"),
            pytest.param(
                [[BOTH, FINE, END], [BOTH, FINE, 61, END], [BOTH, FINE, END]],
                True,
                [0, 0.2, 61.4, 61.8],
                id="is restarted at once after a good minute",
            ),
            pytest.param([[BOTH, FINE, END], [BOTH, 59, END]], True, [0, 0.2, 59.6], id="not quite a minute"),
            pytest.param([[BROKEN, END]] * 2, True, [0, 30, 60], id="no driver"),
            pytest.param([[ABSENT, END]] * 2, True, [0, 30, 60], id="no driver for a GPU on the bus"),
            pytest.param([[ABSENT, END]] * 2, False, [0, 300, 600], id="no GPU"),
            pytest.param([[BROKEN, END]] * 2, False, [0, 30, 60], id="a broken driver"),
            pytest.param([[BOTH, FINE, ABSENT, END]], False, [0, 30], id="GPUs that were there"),
            pytest.param([[BROKEN, BOTH, FINE, END]], True, [0, 0.2], id="a driver that works again"),
        ],
    )
    @virtual_time
    async def test_are_started_again(
        self, play: Play, monkeypatch: pytest.MonkeyPatch, scripts: list[Any], is_plugged: bool, started: list[float]
    ) -> None:
        # without jitter
        monkeypatch.setattr("random.uniform", lambda low, high: high)
        monkeypatch.setattr("random.random", lambda: 1.0)
        node = await play(*scripts, is_plugged=is_plugged)
        await asyncio.sleep(1000)
        assert [round(at, 1) for at in node.started] == started
        assert [reader.ends for reader in node.readers[:-1]] == [1] * (len(started) - 1)

    @virtual_time
    async def test_one_that_cannot_be_started_ends_the_watch(self, tmp_path: Path, monkeypatch: Any) -> None:
        node = Node(tmp_path)
        node.scripts = [[OSError("no more processes")]]
        monkeypatch.setattr(watch, "Succession", lambda options: Readers(node, options))
        with pytest.raises(ExceptionGroup) as failed:
            await node.make().run()
        assert [str(each) for each in failed.value.exceptions] == ["no more processes"]
        assert node.reader.ends == 1
        assert all(each.is_closed for each in node.files)

    @virtual_time
    async def test_gpus_stay_healthy_while_one_is_restarted(self, play: Play) -> None:
        node = await play([BOTH, FINE, END], [4, BOTH, FINE])
        for _ in range(20):
            await asyncio.sleep(1)
            assert node.unhealthy == set()

    @virtual_time
    async def test_gpus_that_no_reader_reports_are_unhealthy_after_a_few_seconds(self, play: Play) -> None:
        node = await play([BOTH, FINE, END], [], rescanSeconds=1.0)
        await asyncio.sleep(4.9)
        assert node.unhealthy == set()
        await asyncio.sleep(0.2)
        assert node.unhealthy == {"GPU-1", "GPU-2"}
        assert node.trouble == "ReaderFailed"

    @virtual_time
    async def test_nothing_is_left_of_a_watch_that_has_ended(self, tmp_path: Path, monkeypatch: Any) -> None:
        node = Node(tmp_path, handOver=["auto"])
        node.scripts = [[BOTH, FINE, END]]
        monkeypatch.setattr(watch, "Succession", lambda options: Readers(node, options))
        async with background(node.make().run()):
            while not node.served:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
        assert [each.is_closed for each in node.files] == [True, True]
        await asyncio.sleep(100)
        assert node.trouble == ""

    @virtual_time
    async def test_the_first_failure_counts(self, play: Play) -> None:
        node = await play([BOTH, FINE, END], *[[1, END]] * 20, rescanSeconds=1.0)
        await asyncio.sleep(4.9)
        assert node.trouble == ""
        await asyncio.sleep(0.2)
        assert node.trouble == "ReaderFailed"

    @virtual_time
    async def test_a_problem_of_the_driver_counts_at_once(self, play: Play) -> None:
        node = await play([BOTH, FINE, END], [BROKEN, 100], [])
        await asyncio.sleep(1)
        assert node.trouble == "DriverFailed"
        # and no failure of the reader replaces it
        await asyncio.sleep(20)
        assert node.trouble == "DriverFailed"

    @virtual_time
    async def test_a_driver_that_is_read_again(self, play: Play) -> None:
        node = await play([BROKEN, 1, BOTH, FINE])
        assert node.trouble == "DriverFailed"
        await asyncio.sleep(2)
        assert node.trouble == ""
        assert node.unhealthy == set()

    @virtual_time
    async def test_one_that_hangs_for_good_is_waited_for(self, play: Play) -> None:
        node = await play([BOTH, FINE, 1, ReaderFailed("silent")], [BOTH, FINE])
        node.reader.has_ended = False
        await asyncio.sleep(100)
        assert node.trouble == "DriverHangs"
        assert len(node.readers) == 1
        node.readers[0].gone.set()
        await asyncio.sleep(10)
        assert len(node.readers) == 2
        assert node.trouble == ""


class TestRescans:
    @pytest.mark.parametrize(
        ("script", "rescans"),
        [
            pytest.param([BOTH, *[5, FINE] * 40], [], id="all there"),
            pytest.param([BOTH, LOST, *[5, LOST] * 13], [30, 60], id="a lost GPU"),
            pytest.param([Found("1", [ONE], unnamed=["x"]), *[5, FINE] * 7], [30], id="an unnamed one"),
            pytest.param([Found("1", [ONE], is_partial=True), *[10, FINE] * 70], [600], id="links unknown"),
            pytest.param([Found("1", [ONE], is_partial=True), *[10, LOST] * 5], [30], id="both"),
            pytest.param([BOTH, FINE, Changed(), 0.5, FINE, 0.6, FINE, *[5, FINE] * 4], [1.1], id="other GPUs"),
            pytest.param([BOTH, LOST, 40, Alive(), Xid("GPU-1", 31, 1)], [], id="not between readings"),
        ],
    )
    @virtual_time
    async def test_come_when_they_may_help(self, play: Play, script: list[Any], rescans: list[float]) -> None:
        node = await play(script)
        await asyncio.sleep(1000)
        assert [round(at, 1) for at in node.reader.rescans] == rescans

    @virtual_time
    async def test_one_at_a_time(self, play: Play) -> None:
        node = await play([BOTH, LOST, *[5, LOST] * 13])
        node.reader.may_rescan = False
        await asyncio.sleep(100)
        assert node.reader.rescans == []


class TestFiles:
    @pytest.mark.parametrize(
        ("directory", "name", "is_wanted"),
        [
            ("dev", "nvidia0", True),
            ("dev", "nvidiactl", True),
            ("dev", "null", False),
            ("dev/shm", "nvidia0", False),
        ],
    )
    @virtual_time
    async def test_a_device_file_has_the_gpus_read_again(
        self, play: Play, directory: str, name: str, is_wanted: bool
    ) -> None:
        node = await play([BOTH, FINE, *[5, FINE] * 3])
        node.files[0].see(node.host / directory / name)
        await asyncio.sleep(20)
        assert [round(at) for at in node.reader.rescans] == ([5] if is_wanted else [])

    @virtual_time
    async def test_a_device_file_ends_the_pause_of_an_idle_plugin(self, play: Play) -> None:
        node = await play([ABSENT, END], [BOTH, FINE], is_plugged=False)
        await asyncio.sleep(10)
        assert node.served == {}
        node.files[0].see(node.host / "dev/nvidia0")
        await asyncio.sleep(0.1)
        assert node.served == {"nvidia.com/gpu": {"GPU-1": True, "GPU-2": True}}

    @virtual_time
    async def test_what_is_followed(self, play: Play) -> None:
        node = await play([BOTH, FINE])
        (files,) = node.files
        assert files.follows == [((node.host / "dev", node.state / "gpus/clear"), False)]
        assert files.patience == [300]
        files.see()
        await asyncio.sleep(1)
        assert len(files.follows) == 2

    @virtual_time
    async def test_requests_to_clear_a_gpu(self, play: Play) -> None:
        node = await play([BOTH, OLD, Xid("GPU-1", 79, 1), Xid("GPU-2", 79, 1)])
        assert node.unhealthy == {"GPU-1", "GPU-2"}
        node.clear("GPU-1")
        node.clear("GPU-unknown")
        node.files[0].see()
        await asyncio.sleep(1)
        assert node.unhealthy == GPU_2
        assert list((node.state / "gpus/clear").iterdir()) == []

    @virtual_time
    async def test_specifications_are_followed_where_they_decide(
        self, play: Play, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        changes = [False, False, True]
        published: list[str] = []

        async def refresh(_: Any) -> bool:
            return changes.pop(0) if changes else False

        monkeypatch.setattr(HostOfGpus, "seen_at", _seen_at(refresh))
        monkeypatch.setattr(GpuWatch, "_publish", lambda _: published.append("published"))
        node = await play([], handOver=["auto"])
        # before anything is published, and by the watch
        assert len(changes) == 1
        specs = node.files[1]
        assert specs.follows == [((Path("/cdi"),), True)]
        assert specs.patience == [300]
        assert published == []
        specs.see()
        await asyncio.sleep(1)
        assert published == ["published"]
        specs.see()
        await asyncio.sleep(1)
        assert published == ["published"]


def _seen_at(refresh: Any) -> Any:
    class Specs:
        directories = (Path("/cdi"),)
        names: dict[str, bool] = {}

    Specs.refresh = refresh  # type: ignore[attr-defined]
    return lambda root, settings, delivery: HostOfGpus(root, Specs(), Delivery())  # type: ignore[arg-type]


class TestNode:
    @virtual_time
    async def test_without_a_gpu_serves_nothing(self, play: Play) -> None:
        node = await play([ABSENT, END], is_plugged=False)
        assert node.served == {}
        assert node.watch.wanted.empty()

    @virtual_time
    async def test_with_a_gpu_that_cannot_be_read_serves_why(self, play: Play) -> None:
        node = await play([ABSENT, END])
        assert node.served == {"nvidia.com/gpu": {}}
        assert node.trouble == "NoGpu"

    @virtual_time
    async def test_remembers_over_a_restart(self, play: Play, tmp_path: Path) -> None:
        node = await play([BOTH, OLD, Xid("GPU-1", 79, 1)])
        again = Node(tmp_path / "again")
        again.state = node.state
        again.make()
        assert again.watch._fleet.trouble_of("GPU-1").reason == "Xid79"

    @virtual_time
    async def test_by_the_rules_of_its_settings(self, play: Play) -> None:
        node = await play([BOTH, OLD, Xid("GPU-1", 31, 1)], criticalXids=[31])
        assert node.unhealthy == GPU_1

    @pytest.mark.parametrize("delivery", [None, Delivery(takes_cdi=False)])
    def test_as_its_runtime_delivers(self, tmp_path: Path, delivery: Delivery | None) -> None:
        host = Node(tmp_path).make(delivery)._host
        assert host.delivery == (delivery or Delivery())
        assert host.root == str(tmp_path / "host")

    def test_what_the_bus_has(self, tmp_path: Path) -> None:
        node = Node(tmp_path)
        assert not has_gpu(str(node.host))
        node.plug()
        assert has_gpu(str(node.host))
