"""The observer beside a kubelet that is a real socket and a real file: what is made of its answers, and of none."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.records.allocations import Allocation
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint
from nodedevice_agent.kubelet import pod_resources
from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR, POD_RESOURCES, KubeletDirectory
from nodedevice_agent.kubelet.observer import Observer
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.kubelet.served import KubeletResources
from nodedevice_agent.lib.filesystem import replace_durably
from nodedevice_api.device_ids import shown_id

from tests.fakes.background import background
from tests.fakes.pod_resources import AssignedDevices, PodResources
from tests.fakes.polling import until
from tests.unit.node_agent.devicemanager.scenario import GPU, pod
from tests.unit.node_agent.kubelet.reader_node import Recorder


class Kubelet:
    """Its directory, and an observer of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / PLUGIN_DIR).mkdir()
        self.resources = PodResources(path / POD_RESOURCES)
        self.published: list[str] = []
        served = KubeletResources(0.0)
        self.reader = KubeletReader(KubeletDirectory(path), served.pods)
        self.observer = Observer(self.reader, served, self.published.append, self.read_capacity)
        self.reader.subscribe(self.observer)
        self.observer.pods_synced([pod("one", gpu=1)])
        self.recorded = Recorder()
        self.reader.subscribe(self.recorded)

    async def read(self) -> bool:
        """As when its checkpoint is written, whatever was before. Whether it answered."""
        self.observer.is_outdated = True
        await self.reader.read()
        return self.recorded.pods[-1].rows is not None

    async def read_capacity(self) -> Mapping[str, int]:
        return {GPU: 2}

    def write(self, *held: Allocation, registered: Mapping[str, tuple[str, ...]] | None = None) -> None:
        """Its checkpoint, as it does at each allocation and each list."""
        known = {GPU: ("a", "b")} if registered is None else registered
        replace_durably(self.path / PLUGIN_DIR / CHECKPOINT, encode(Checkpoint(held, dict(known))))


@pytest.fixture
async def kubelet(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Kubelet]:
    # it answers from this process, on a machine that may be busy
    monkeypatch.setattr(pod_resources, "CALL_SECONDS", 60.0)
    # short, as a socket lies below it
    found = Kubelet(tmp_path_factory.mktemp("k"))
    found.resources.allocatable = {GPU: {"a": (0,), "b": (0, 1)}}
    async with found.resources:
        found.write()
        yield found


async def test_devices_are_known_with_their_numa_nodes(kubelet: Kubelet) -> None:
    await kubelet.read()
    assert {d.id: d.numa_nodes for d in kubelet.observer.served.snapshot(GPU).devices} == {"a": (0,), "b": (0, 1)}
    assert kubelet.published[0] == GPU


async def test_a_kubelet_that_does_not_answer_in_time_loses_nothing(
    kubelet: Kubelet, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet.resources.assigned.append(AssignedDevices("default", "one", "c0", GPU, {"a": ()}))
    kubelet.write(Allocation("one", "c0", GPU, {-1: ("a",)}, b""))
    assert await kubelet.read()
    kubelet.resources.stick()
    with monkeypatch.context() as patched:
        patched.setattr(pod_resources, "CALL_SECONDS", 0.02)
        for _ in range(3):
            assert not await kubelet.read()
    assert {a.pod_uid: a.device_ids for a in kubelet.observer.served.manager.book} == {"one": ("a",)}
    (record,) = (record for record in caplog.records if record.levelname == "WARNING")
    assert "Deadline Exceeded" in record.__dict__["error"]
    kubelet.resources.go_on()
    assert await kubelet.read()


async def test_sixty_thousand_devices_are_shown(kubelet: Kubelet) -> None:
    kubelet.resources.allocatable = {GPU: {f"device-{index:06}": (index % 2,) for index in range(60_000)}}
    served = kubelet.observer.served
    await kubelet.read()
    assert not served.resources, "it is shown once its list is made, in a thread"
    async with background(kubelet.observer.run()):
        await until(lambda: GPU in served.resources and served.snapshot(GPU).healthy == 60_000)
        # in another order, as the kubelet lists them, then without some
        listed = kubelet.resources.allocatable[GPU]
        kubelet.resources.allocatable = {GPU: dict(reversed(listed.items()))}
        await kubelet.read()
        kubelet.resources.allocatable = {GPU: dict([*listed.items()][:-5])}
        await kubelet.read()
        await until(lambda: served.snapshot(GPU).healthy == 59_995)
    assert len(served.resources[GPU].devices) == 60_000


async def test_of_too_many_devices_the_checkpoint_is_shown(kubelet: Kubelet, caplog: pytest.LogCaptureFixture) -> None:
    # few long ones: what counts is the length of the message
    ids: dict[str, tuple[int, ...]] = {f"{index:06}{'x' * 100_000}": () for index in range(200)}
    kubelet.resources.allocatable = {GPU: ids}
    await kubelet.read()
    assert kubelet.observer.served.snapshot(GPU).healthy == 2
    # gRPC's server logs its own end of the call, at any moment
    errors = [getattr(record, "error", "") for record in caplog.records]
    assert any("larger than max" in error for error in errors)


@pytest.mark.parametrize("is_listed", [True, False], ids=["with a list of devices", "by the checkpoint alone"])
async def test_devices_with_any_id_are_shown_and_are_healthy(kubelet: Kubelet, is_listed: bool) -> None:
    """Also of the pod that holds one: a plugin may list control characters, and the API does not accept them."""
    ids = ("\0", "\1", "", "*", "a\nb", "x" * 10_000)
    kubelet.resources.allocatable = {GPU: dict.fromkeys(ids, (0,))} if is_listed else None
    kubelet.resources.assigned.append(AssignedDevices("default", "one", "c0", GPU, dict.fromkeys(ids[:5], ())))
    held = Allocation("one", "c0", GPU, {-1: tuple(map(shown_id, ids[:5]))}, b"")
    kubelet.write(held, registered={GPU: tuple(map(shown_id, ids))})
    kubelet.observer.pods_synced([pod("one", gpu=5)])
    assert await kubelet.read()
    now = kubelet.observer.served.snapshot(GPU)
    assert {view.id: view.healthy for view in now.devices} == {shown_id(i): True for i in ids}
    assert [view.allocation.device_ids for view in now.held] == [tuple(sorted(map(shown_id, ids[:5])))]
    assert (now.total, now.healthy, now.allocated, now.id_error) == (6, 6, 5, "")
