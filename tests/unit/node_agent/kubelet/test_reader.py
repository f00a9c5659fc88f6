"""Readings of the one reader of the kubelet: how fresh they are, and how they are decoded."""

import threading
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.files import read_regular
from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.kubelet import codec, pod_resources, reader
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading, PodResourcesRow
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2
from nodedevice_common import threads

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Node, Recorder


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


async def test_the_end_of_a_pod_that_the_api_does_not_have_shows_in_a_list(node: Node) -> None:
    """Such as a static pod whose mirror pod was never made."""
    node.pods["one"] = pod("one", gpu=1)
    node.kubelet.rows += (PodResourcesRow("kube-system", "static", "c0", GPU, ("c",)),)
    await node.reader.read()
    node.kubelet.rows = node.kubelet.rows[:1]
    node.recorded.is_outdated = True
    await node.reader.read()
    assert [row.name for row in node.recorded.pods[-1].rows or ()] == ["one"]
