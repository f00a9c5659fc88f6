"""The one reader of the kubelet, and everybody who subscribes to it: what each gets, when, and what the kubelet is asked for it."""

import ast
import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from nodedevice_agent.checkpoint.files import read_regular
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, accept
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet import codec, pod_resources, reader
from nodedevice_agent.kubelet.mirror import Mirror
from nodedevice_agent.kubelet.mirror_feed import MirrorFeed
from nodedevice_agent.kubelet.observer import LIST_SECONDS, Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading, PodResourcesRow, Subscriber
from nodedevice_agent.kubelet.served import ServedByKubelet
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint
from nodedevice_agent.runtime.kubelet_takeover import CHECK_SECONDS, KubeletTakeover
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2
from nodedevice_common import tasks, threads

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers, read_at_once
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.fakes.polling import until
from tests.fakes.virtual_time import virtual_time
from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario
from tests.unit.node_agent.devicemanager.scenario import GPU, init, pod
from tests.unit.sources import ROOT, parsed

AGENT = ROOT / "node-agent/src/nodedevice_agent"


class Node:
    """A kubelet that has given a GPU to pod one, and to the init container of pod two, and who knows of that."""

    def __init__(self, kubelet: KubeletAnswers) -> None:
        self.kubelet = kubelet
        self.pods: dict[str, Pod] = {}
        self.reader = kubelet.reader(self.pods)
        self.recorded = Recorder()
        self.reader.subscribe(self.recorded)
        kubelet.rows = (PodResourcesRow("default", "one", "c0", GPU, ("a",)),)
        kubelet.devices = {GPU: {"a": (0,), "b": (1,), "c": ()}}
        self.write()

    def write(self, *more: Allocation) -> None:
        held = (Allocation("one", "c0", GPU, {-1: ("a",)}, b""), Allocation("two", "i0", GPU, {-1: ("b",)}, b""))
        self.kubelet.write(*held, *more, registered={GPU: ("a", "b", "c")})

    def subscribe(self, name: str) -> Callable[[], object]:
        """Returns what shows all that it knows."""
        subscriber, known = SUBSCRIBERS[name](self.reader)
        self.reader.subscribe(subscriber)
        return known


class Recorder:
    """A subscriber that follows everything."""

    def __init__(self) -> None:
        self.pace = Pace(is_following=True, lists_devices=True)
        self.is_outdated = True
        self.checkpoints: list[CheckpointReading] = []
        self.pods: list[PodReading] = []

    def checkpoint_read(self, found: CheckpointReading) -> None:
        self.checkpoints.append(found)
        self.is_outdated = True

    def pods_read(self, found: PodReading) -> None:
        self.pods.append(found)


def observer(reader: KubeletReader) -> tuple[Subscriber, Callable[[], object]]:
    async def capacity() -> dict[str, int]:
        return {GPU: 3}

    served = ServedByKubelet(0.0)
    served.pods_synced([pod("one", gpu=1), pod("two", init("i0"))], 0.0)
    reader._pods = served.pods

    def known() -> object:
        devices = served.snapshot(GPU).devices if GPU in served.resources else ()
        held = {a.pod_uid: a.device_ids for a in served.book}
        return held, served.has_healthy(GPU), [(d.id, d.reason, d.numa_nodes) for d in devices]

    return Observer(reader, served, lambda _: None, capacity), known


def mirror_feed(reader: KubeletReader) -> tuple[Subscriber, Callable[[], object]]:
    mirror = Mirror(0.0)
    mirror.connected(GPU, 1, PluginOptions(), 0.0)
    mirror.listed(GPU, 1, accept(Device(name) for name in "abc"), 0.0)
    mirror.pods_synced([pod("one", gpu=1), pod("two", init("i0"))], 0.0)
    reader._pods = mirror.pods
    host = cast(PluginHost, SimpleNamespace(do=lambda _: None, now=lambda: 0.0))
    feed = MirrorFeed(reader.directory, mirror, host, lambda: None)
    return feed, lambda: {a.pod_uid: a.device_ids for a in mirror.book}


def kubelet_checkpoint(reader: KubeletReader) -> tuple[Subscriber, Callable[[], object]]:
    found = KubeletCheckpoint(reader)
    return found, lambda: (GPU in found, found.requests_met("one"), found.requests_met("two"))


def kubelet_takeover(reader: KubeletReader) -> tuple[Subscriber, Callable[[], object]]:
    found = KubeletTakeover(RuntimeScenario.with_plugin(1).manager, reader.directory.pod_resources)
    return found, lambda: found.pace.list_seconds


# all that the agent has, by the name of their class
SUBSCRIBERS: Final[dict[str, Callable[[KubeletReader], tuple[Subscriber, Callable[[], object]]]]] = {
    "KubeletCheckpoint": kubelet_checkpoint,
    "KubeletTakeover": kubelet_takeover,
    "MirrorFeed": mirror_feed,
    "Observer": observer,
}
# A container that may need a device of the kubelet's waits for a checkpoint that can be used; nothing is freed by that.
HOLDS_BACK: Final = {"KubeletCheckpoint"}


def test_every_subscriber_of_the_agent_is_tried() -> None:
    found = {
        each.name
        for path in AGENT.rglob("*.py")
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.ClassDef) and any(getattr(m, "name", "") == "checkpoint_read" for m in each.body)
    }
    assert found - {"Subscriber"} == SUBSCRIBERS.keys()


def test_nobody_else_reads_the_kubelets_checkpoint_or_dials_its_pod_resources() -> None:
    """But the choice of a runtime, before there is a loop."""
    callers = {
        f"{path.relative_to(AGENT)}: {name}"
        for path in AGENT.rglob("*.py")
        for each in ast.walk(parsed(path))
        if isinstance(each, ast.Call)
        and (name := getattr(each.func, "id", "")) in ("read_checkpoint", "checkpoint_octets", "connected")
    }
    assert callers == {
        "kubelet/directory.py: checkpoint_octets",
        "kubelet/reader.py: checkpoint_octets",
        "kubelet/reader.py: connected",
        "runtime/selected_runtime.py: read_checkpoint",
    }


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(KubeletAnswers(tmp_path, monkeypatch))


# -- everybody -----------------------------------------------------------------------------------------------------------


def is_away(node: Node) -> None:
    node.kubelet.problem = "UNAVAILABLE: no route"


def lists_no_devices(node: Node) -> None:
    node.kubelet.devices_problem = "UNIMPLEMENTED: no such method"


def has_a_torn_file(node: Node) -> None:
    node.kubelet.write_text("{")


def has_a_wrong_checksum(node: Node) -> None:
    text = node.kubelet.directory.checkpoint.read_text()
    node.kubelet.write_text(text.replace('"Checksum":', '"Checksum":1'))


def has_an_empty_file(node: Node) -> None:
    node.kubelet.write_text("")


def has_a_directory_there(node: Node) -> None:
    node.kubelet.directory.checkpoint.unlink()
    node.kubelet.directory.checkpoint.mkdir()


def has_a_torn_file_and_lists_no_devices(node: Node) -> None:
    has_a_torn_file(node)
    lists_no_devices(node)


def is_away_with_a_torn_file(node: Node) -> None:
    has_a_torn_file(node)
    is_away(node)


BROKEN: Final = [
    is_away,
    lists_no_devices,
    has_a_torn_file,
    has_a_wrong_checksum,
    has_an_empty_file,
    has_a_directory_there,
    has_a_torn_file_and_lists_no_devices,
    is_away_with_a_torn_file,
]


@pytest.mark.parametrize("name", SUBSCRIBERS)
@pytest.mark.parametrize("breaks", BROKEN)
async def test_what_cannot_be_read_reaches_nobody_as_empty(
    breaks: Callable[[Node], None], name: str, node: Node
) -> None:
    """Pods are those of before, and so are what they hold, and all devices with their NUMA nodes."""
    known = node.subscribe(name)
    await node.reader.read()
    before = known()
    breaks(node)
    node.kubelet.rows += (PodResourcesRow("default", "two", "i0", GPU, ("b",)),)
    for _ in range(3):
        node.recorded.is_outdated = True
        await node.reader.read()
    assert tasks.problems() == ()
    if name not in HOLDS_BACK or node.recorded.checkpoints[-1].checkpoint is not None:
        assert known() == before
    checkpoint, pods = node.recorded.checkpoints[-1], node.recorded.pods[-1]
    assert (checkpoint.checkpoint is None) is bool(checkpoint.problem)
    assert (pods.rows is None) is bool(pods.problem)
    assert (pods.devices is None) is bool(pods.devices_problem or pods.problem)
    assert checkpoint.problem or pods.problem or pods.devices_problem


@pytest.mark.parametrize("name", SUBSCRIBERS)
@virtual_time
async def test_everybody_gets_a_reading_after_the_kubelet_comes_back(
    name: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once(monkeypatch)
    known, fresh = node.subscribe(name), Node.subscribe(node, name)
    async with background(node.reader.run()):
        await asyncio.sleep(60)
        before = known()
        is_away_with_a_torn_file(node)
        await asyncio.sleep(300)
        node.kubelet.problem = ""
        node.kubelet.rows = ()
        node.kubelet.write(registered={"example.com/other": ("x",)})
        node.kubelet.devices = {"example.com/other": {"x": ()}}
        await asyncio.sleep(60)
        assert known() != before
    assert known() == fresh()


@pytest.mark.parametrize("name", SUBSCRIBERS)
@virtual_time
async def test_one_that_fails_keeps_nobody_from_a_reading_and_gets_it_again(
    name: str, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once(monkeypatch)
    known = node.subscribe(name)
    other = Recorder()
    node.reader.subscribe(other)
    subscriber = next(each for each in node.reader._subscribers if type(each).__name__ == name)
    with monkeypatch.context() as broken:
        for method in ("checkpoint_read", "pods_read"):
            broken.setattr(subscriber, method, lambda _: 1 / 0)
        running = asyncio.create_task(node.reader.run())
        await asyncio.sleep(10)
        assert other.checkpoints
        assert other.pods
        for reading in ("checkpoint", "pods"):
            assert any(f"kubelet state {reading} {name} fails" in problem for problem in tasks.problems())
        before = known()
    # nothing has happened since
    await asyncio.sleep(120)
    assert known() != before
    assert tasks.problems() == ()
    running.cancel()


# -- what it costs -------------------------------------------------------------------------------------------------------

# by who is there: of pod resources in ten minutes in which nothing happens
IDLE: Final = {
    ("Observer",): {"connections": 20, "List": 20, "GetAllocatableResources": 20},
    ("Observer", "KubeletCheckpoint", "KubeletTakeover"): {
        "connections": 60,
        "List": 60,
        "GetAllocatableResources": 60,
    },
    ("Observer", "MirrorFeed"): {"connections": 20, "List": 20, "GetAllocatableResources": 20},
    ("MirrorFeed",): {"connections": 1, "List": 1},
    ("KubeletCheckpoint",): {},
}


@pytest.mark.parametrize("names", IDLE, ids="+".join)
@virtual_time
async def test_an_idle_agent_asks_the_kubelet_as_often_as_its_most_frequent_subscriber(
    names: tuple[str, ...], node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once(monkeypatch)
    reads: Counter[Path] = Counter()
    read = read_regular

    def counted(file: Path) -> bytes:
        reads[file] += 1
        return read(file)

    monkeypatch.setattr("nodedevice_agent.kubelet.directory.read_regular", counted)
    node.reader._subscribers.clear()
    for name in names:
        node.subscribe(name)
    async with background(node.reader.run()):
        await asyncio.sleep(600 - CHECK_SECONDS / 2)
    assert node.kubelet.calls == IDLE[names]
    assert reads == {node.kubelet.directory.checkpoint: 1}


@virtual_time
async def test_an_allocation_is_one_connection_with_two_calls_for_all(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once(monkeypatch)
    for name in ("MirrorFeed", "Observer"):
        node.subscribe(name)
    node.reader._pods = pods = {"one": pod("one", gpu=1), "two": pod("two", init("i0"))}
    async with background(node.reader.run()):
        await asyncio.sleep(1)
        node.kubelet.calls.clear()
        pods["three"] = pod("three", gpu=1)
        node.kubelet.rows += (PodResourcesRow("default", "three", "c0", GPU, ("c",)),)
        # several writes at once, as of a pod with several containers
        for ids in (("x",), ("c",)):
            node.write(Allocation("three", "c0", GPU, {-1: ids}, b""))
        await asyncio.sleep(1)
    assert node.kubelet.calls == {"connections": 1, "Get": 1, "GetAllocatableResources": 1}
    assert node.kubelet.asked == ["three"]


@virtual_time
async def test_a_kubelet_that_is_away_is_asked_ever_later(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read_at_once(monkeypatch)
    node.subscribe("Observer")
    times: list[float] = []
    loop = asyncio.get_running_loop()
    node.kubelet.meanwhile = lambda: times.append(loop.time())
    is_away(node)
    async with background(node.reader.run()):
        await asyncio.sleep(120)
    pauses = [round(later - earlier) for earlier, later in pairwise(times)]
    assert pauses[:6] == [1, 2, 4, 8, 16, 30]
    assert node.kubelet.calls.keys() == {"connections", "List"}, "of one that does not answer nothing else is asked"


@virtual_time
async def test_events_of_others_in_its_directory_are_not_a_reason_to_read(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_at_once(monkeypatch)
    node.subscribe("Observer")
    async with background(node.reader.run()):
        await asyncio.sleep(1)
        for number in range(5):
            (node.kubelet.directory.device_plugins / f"plugin-{number}.sock").touch()
            await asyncio.sleep(1)
    assert node.kubelet.calls["connections"] == 1


# -- freshness -----------------------------------------------------------------------------------------------------------


async def test_a_write_while_the_file_is_read_is_read_next(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.reader.read_checkpoint()
    read = read_regular

    def overtaken(file: Path) -> bytes:
        octets = read(file)
        node.kubelet.write()
        return octets

    node.write(Allocation("three", "c0", GPU, {-1: ("c",)}, b""))
    with monkeypatch.context() as patched:
        patched.setattr("nodedevice_agent.kubelet.directory.read_regular", overtaken)
        await node.reader.read_checkpoint()
    await node.reader.read_checkpoint()
    counts = [len(each.checkpoint.allocations) for each in node.recorded.checkpoints if each.checkpoint]
    assert counts == [2, 3, 0]


async def test_the_same_content_in_another_file_is_another_reading(node: Node) -> None:
    """A list of devices may differ in what is not in it, such as NUMA nodes."""
    for _ in range(2):
        node.write()
        for _ in range(2):
            await node.reader.read_checkpoint()
    assert len(node.recorded.checkpoints) == 2


async def test_rows_go_with_the_newest_checkpoint(node: Node) -> None:
    """What has been given out while the kubelet was asked is not forgotten again."""
    await node.reader.read_checkpoint()
    node.write(Allocation("three", "c0", GPU, {-1: ("c",)}, b""))

    class Slow(KubeletAnswers):
        async def list_pods(self) -> Any:
            await node.reader.read_checkpoint()
            return await super().list_pods()

    node.kubelet.__class__ = Slow
    await node.reader.read()
    found = node.recorded.pods[-1].checkpoint
    assert found is not None
    assert len(found.allocations) == 3


async def test_who_is_outdated_meanwhile_gets_another(node: Node) -> None:
    await node.reader.read()
    node.kubelet.meanwhile = lambda: setattr(node.recorded, "is_outdated", True)
    node.recorded.is_outdated = True
    await node.reader.read()
    assert node.recorded.is_outdated
    node.kubelet.meanwhile = lambda: None
    await node.reader.read()
    assert (node.recorded.is_outdated, len(node.recorded.pods)) == (False, 3)


async def test_without_a_thread_to_read_with_nothing_is_known(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await node.reader.read()
    node.write()

    def none(run: object, name: str) -> None:
        raise OSError(11, threads.NO_THREAD)

    with monkeypatch.context() as patched:
        patched.setattr(threads, "start", none)
        await node.reader.read()
        assert node.recorded.checkpoints[-1] == CheckpointReading(None, f"cannot be read: {threads.NO_THREAD}")
    await node.reader.read()
    assert node.recorded.checkpoints[-1].problem == ""


@pytest.mark.parametrize("is_long", [False, True])
async def test_what_is_long_is_decoded_in_a_thread(
    is_long: bool, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint, and each answer of the kubelet."""
    folder, seen = tmp_path_factory.mktemp("k"), dict[str, bool]()

    def noting(module: Any, name: str) -> None:
        decode = getattr(module, name)

        def noted(octets: Any) -> Any:
            seen[name] = threading.current_thread() is threading.main_thread()
            return decode(octets)

        monkeypatch.setattr(module, name, noted)

    noting(reader, "checkpoint_of")
    for name in ("all_rows", "healthy_devices", "rows_of_pod"):
        noting(codec, name)
    ids = tuple(f"{'x' * 60}{number:04}" for number in range(400 if is_long else 2))
    (folder / "device-plugins").mkdir()
    kubelet = KubeletAnswers(folder, monkeypatch)
    monkeypatch.setattr(reader, "connected", pod_resources.connected)
    held = Allocation("one", "c0", GPU, {-1: ids}, b"")
    kubelet.write(held, registered={GPU: ids})
    pods = {"one": pod("one", gpu=1)}
    own, recorded = kubelet.reader(pods), Recorder()
    own.subscribe(recorded)
    async with PodResources(kubelet.directory.pod_resources) as service:
        service.assigned = [AssignedDevices("default", "one", "c0", GPU, dict.fromkeys(ids, (0,)))]
        service.allocatable = {GPU: dict.fromkeys(ids, (0,))}
        await own.read()
        kubelet.write(Allocation("one", "c1", GPU, {-1: ids}, b""), registered={GPU: ids})
        await own.read()
    assert seen == dict.fromkeys(("checkpoint_of", "all_rows", "healthy_devices", "rows_of_pod"), not is_long)
    assert recorded.pods[-1].rows is not None
    assert recorded.pods[-1].rows[0].device_ids == ids


async def test_what_is_no_answer_is_not_an_empty_one(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(KubeletAnswers(tmp_path_factory.mktemp("k"), monkeypatch))
    monkeypatch.setattr(reader, "connected", pod_resources.connected)
    monkeypatch.setattr(codec, "all_rows", lambda _: api_pb2.PodResources.FromString(b"\xff"))
    async with PodResources(node.kubelet.directory.pod_resources):
        await node.reader.read()
    assert node.recorded.pods[-1] == PodReading(
        node.recorded.checkpoints[-1].checkpoint, None, "the response is not a message of the pod resources API"
    )


async def test_a_file_that_comes_late_is_found(node: Node) -> None:
    """Also one that is there before its directory is watched."""
    node.recorded.pace = Pace(is_following=True, check_seconds=3600.0)
    node.kubelet.directory.checkpoint.unlink()
    node.kubelet.directory.device_plugins.rmdir()
    async with background(node.reader.run()):
        await until(lambda: len(node.recorded.pods) == 1)
        node.kubelet.directory.device_plugins.mkdir()
        node.write()
        await until(lambda: node.recorded.checkpoints[-1].checkpoint.registered == {GPU: ("a", "b", "c")})  # type: ignore[union-attr]


def test_the_observers_pace_is_the_documented_one() -> None:
    assert LIST_SECONDS == 30.0


async def test_the_end_of_a_pod_that_the_api_does_not_have_shows_in_a_list(node: Node) -> None:
    """Such as a static pod whose mirror pod was never made."""
    node.pods["one"] = pod("one", gpu=1)
    node.kubelet.rows += (PodResourcesRow("kube-system", "static", "c0", GPU, ("c",)),)
    await node.reader.read()
    node.kubelet.rows = node.kubelet.rows[:1]
    node.recorded.is_outdated = True
    await node.reader.read()
    assert [row.name for row in node.recorded.pods[-1].rows or ()] == ["one"]
