"""Readings of the one reader of the kubelet: how fresh they are, and how they are decoded."""

import threading
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.checkpoint.files import read_regular
from nodedevice_agent.devicemanager.allocation.allocations import Allocation, Checkpoint
from nodedevice_agent.kubelet import codec, pod_resources, reader
from nodedevice_agent.kubelet.directory import checkpoint_of
from nodedevice_agent.kubelet.readings import CheckpointReading, Pace, PodReading, PodResourcesRow
from nodedevice_api.upstream.kubelet.podresources.v1 import api_pb2
from nodedevice_common import threads

from tests.fakes.background import background
from tests.fakes.kubelet_answers import KubeletAnswers
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Node, Recorder, has_a_torn_file, is_away


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


async def test_a_problem_that_lasts_is_given_once(node: Node) -> None:
    has_a_torn_file(node)
    for _ in range(3):
        await node.reader.read_checkpoint()
    assert len(node.recorded.checkpoints) == 1


async def test_after_a_failure_of_ours_pods_are_asked_for_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(node.kubelet, "list_pods", lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            await node.reader.read()
    assert (node.recorded.pods, node.recorded.is_outdated) == ([], False)
    await node.reader.read()
    assert len(node.recorded.pods) == 1


async def test_a_kubelet_that_went_away_is_noticed_though_no_pod_has_changed(node: Node) -> None:
    node.pods["one"] = pod("one", gpu=1)
    await node.reader.read()
    is_away(node)
    node.recorded.is_outdated = True
    await node.reader.read()
    assert (node.recorded.pods[-1].rows, node.recorded.pods[-1].problem) == (None, "UNAVAILABLE: no route")
    # it may be another one that comes back
    node.kubelet.problem = ""
    node.kubelet.calls.clear()
    await node.reader.read()
    assert (node.recorded.pods[-1].problem, node.kubelet.calls["List"]) == ("", 1)


async def test_a_reading_says_whether_all_pods_were_listed_for_it(node: Node) -> None:
    node.pods["one"] = pod("one", gpu=1)
    for _ in range(2):
        node.recorded.is_outdated = True
        await node.reader.read()
    assert [each.is_listed for each in node.recorded.pods] == [True, False]


async def test_who_wants_all_pods_listed_gets_them_at_the_start(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.recorded.pace, node.recorded.is_outdated = Pace(list_seconds=30.0), False
    monkeypatch.setattr(node.recorded, "checkpoint_read", lambda _: None)
    await node.reader.read()
    assert [each.is_listed for each in node.recorded.pods] == [True]


@pytest.mark.parametrize("less", [0, 1])
async def test_a_checkpoint_is_long_from_a_bound_on(node: Node, monkeypatch: pytest.MonkeyPatch, less: int) -> None:
    seen: list[bool] = []

    def noted(octets: bytes | None) -> Checkpoint:
        seen.append(threading.current_thread() is threading.main_thread())
        return checkpoint_of(octets)

    size = node.kubelet.directory.checkpoint.stat().st_size
    monkeypatch.setattr(reader, "MAX_BYTES_IN_LOOP", size - less)
    monkeypatch.setattr(reader, "checkpoint_of", noted)
    await node.reader.read_checkpoint()
    assert seen == [not less]
