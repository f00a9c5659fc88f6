"""What the observer logs of readings, and when it reads the Node's capacity: without a kubelet, in virtual time."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.devicemanager import resource_name_limit
from nodedevice_agent.devicemanager.attribution.attribute import PodResourcesRow
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.kubelet import observer as module
from nodedevice_agent.kubelet import served
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading, DevicesByID, PodReading
from nodedevice_agent.kubelet.served import KubeletResources
from nodedevice_common import tasks
from nodedevice_common.tasks import retried
from nodedevice_kube.api_errors import Unavailable

from tests.fakes.background import background
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.log_lines import log_lines
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.scenario import GPU

pytestmark = virtual_time

ROWS = (PodResourcesRow("default", "one", "c0", GPU, ("a",)),)
CHECKPOINT, RESOURCES, ALLOCATABLE = (
    "the kubelet's checkpoint cannot be used; init containers that hold its devices are not shown",
    "the kubelet's pod resources cannot be read; its devices are not shown, or not updated",
    "the kubelet does not list allocatable devices; NUMA nodes of its devices are not shown",
)


class Node:
    def __init__(self, folder: Path) -> None:
        # when the capacity was read, and whether that fails
        self.reads: list[float] = []
        self.fails: Exception | None = None
        self.served = KubeletResources(now())
        self.observer = Observer(reader_of(folder), self.served, lambda name: None, self._capacity)
        self.observer.pods_synced([])

    async def _capacity(self) -> Mapping[str, int]:
        self.reads.append(now())
        if self.fails is not None:
            raise self.fails
        return {GPU: 5}

    def reads_devices(self, **devices: tuple[int, ...]) -> None:
        self.observer.pods_read(reading({GPU: devices} if devices else {}))


def reading(devices: Mapping[str, DevicesByID] | None = None, *, devices_problem: str = "") -> PodReading:
    return PodReading(Checkpoint(), ROWS, devices=devices, devices_problem=devices_problem)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_problem_and_end_are_logged_once(node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    def happens() -> list[tuple[str, str, dict[str, Any]]]:
        caplog.clear()
        for problem in ("why", "another", ""):
            node.observer.checkpoint_read(CheckpointReading(None, problem))
            node.observer.pods_read(PodReading(None, None, problem) if problem else reading())
        for problem in ("why", "another", ""):
            node.observer.pods_read(reading(devices_problem=problem))
        return log_lines(caplog.records)

    def expected(level: str) -> list[tuple[str, str, dict[str, Any]]]:
        over, path = "the kubelet responds again", str(tmp_path)
        return [
            (level, CHECKPOINT, {"path": path, "error": "why"}),
            (level, RESOURCES, {"path": path, "error": "why"}),
            ("INFO", over, {"what": "checkpoint"}),
            ("INFO", over, {"what": "pod resources"}),
            ("WARNING", ALLOCATABLE, {"path": path, "error": "why"}),
            ("INFO", over, {"what": "allocatable"}),
        ]

    # before its first answer it is no fault
    assert happens() == expected("INFO")
    assert happens() == expected("WARNING")


async def test_it_wakes_the_reader_while_it_is_outdated(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    woken = list[bool]()
    monkeypatch.setattr(KubeletReader, "wake", lambda _: woken.append(node.observer.is_outdated))
    for node.observer.is_outdated in (False, True):
        node.observer.pod_gone("one")
    assert woken == [True]


async def test_names_without_a_place_are_logged_as_their_number_changes(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # one is that of the row
    monkeypatch.setattr(resource_name_limit, "MAX_NAMES", 3)
    counts = []
    for names in (2, 5, 5, 4, 2, 3):
        caplog.clear()
        node.observer.pods_read(reading({f"example.com/r{number}": {"a": ()} for number in range(names)}))
        counts.append([fields["count"] for _, _, fields in log_lines(caplog.records)])
    assert counts == [[], [3], [], [2], [], [1]]


async def test_the_capacity_is_read_as_devices_change_or_rarely(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "jittered", lambda seconds, share, chance: seconds)
    began = now()
    async with background(node.observer.run()):
        await asyncio.sleep(1000)
        assert node.reads == []
        # the first devices, then another one seconds later, which the Node's status shows somewhat later
        node.reads_devices(a=(0,))
        await asyncio.sleep(1)
        node.reads_devices(a=(0,), b=())
        node.reads_devices(a=(0,), b=())
        await asyncio.sleep(700)
        assert [round(each - began) for each in node.reads] == [1000, 1013, 1613]
        assert node.served.snapshot(GPU).total == 5
        # where it cannot be read
        node.fails = Unavailable("reading", "the node", "no route")
        await asyncio.sleep(1000)
        assert [round(each - began) for each in node.reads[3:6]] == [2213, 2243, 2273]
        # without devices
        node.reads_devices()
        node.reads.clear()
        await asyncio.sleep(1000)
        assert node.reads == []


async def test_a_run_after_a_failure_reads_the_capacity_again(node: Node) -> None:
    async with background(retried("kubelet observer", node.observer.run)):
        node.fails = OSError(24, "Too many open files")
        node.reads_devices(a=(0,))
        await asyncio.sleep(0.5)
        assert len(node.reads) == 1
        node.fails = None
        await asyncio.sleep(tasks.FIRST_PAUSE_SECONDS)
        assert node.served.snapshot(GPU).total == 5


async def test_a_run_after_a_failure_makes_the_long_list(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "MAX_DEVICES_IN_LOOP", 1)
    fails = [True]

    async def in_thread(work: Callable[[], Any]) -> Any:
        if fails:
            fails.clear()
            raise OSError(11, "Resource temporarily unavailable")
        return work()

    monkeypatch.setattr(module, "in_thread", in_thread)
    async with background(retried("kubelet observer", node.observer.run)):
        node.reads_devices(a=(0,), b=(0,), c=(0,))
        await asyncio.sleep(tasks.FIRST_PAUSE_SECONDS + 1)
        assert not fails
        assert node.served.resources[GPU].devices.keys() == {"a", "b", "c"}
