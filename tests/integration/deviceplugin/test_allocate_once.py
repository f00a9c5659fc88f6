"""A device plugin that finds the pod of a call by order, as HAMi's does, with `allocateRetry` always and never.

Source: HAMi v2.10.0 (pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go): Allocate is for the pod that the node's lock
names; device IDs count by their number alone.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.durable_requests import DurableRequests
from nodedevice_agent.devicemanager.allocation import pod_allocation
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/vgpu"
# longer than any test: it says itself when that has passed
RETRY_SECONDS = 3600.0


def pod(name: str) -> Pod:
    return Pod(f"uid-{name}", "default", name, (Container("main", limits={RESOURCE: 1}),))


class OrderedPlugin(FakePlugin):
    """binding: the pod that the scheduler has chosen this node for, until a call has taken it."""

    def __init__(self) -> None:
        super().__init__(RESOURCE, {f"d{index}": FakeDevice() for index in range(8)})
        self.binding = ""
        self.knobs.allocate_answer = self._take

    def _take(self, device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        taken, self.binding = self.binding, ""
        if not taken:
            raise LookupError("no binding pod found on node")
        return api_pb2.ContainerAllocateResponse(envs={"PREPARED_FOR": taken})


@pytest.fixture
async def plugin() -> AsyncIterator[OrderedPlugin]:
    plugin = OrderedPlugin()
    yield plugin
    await plugin.stop()


@pytest.fixture(autouse=True)
def retries_are_made_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_RETRY_SECONDS", "LONGEST_RETRY_SECONDS"):
        monkeypatch.setattr(pod_allocation, name, RETRY_SECONDS)


def prepared_for(manager: HostedManager) -> dict[str, str]:
    """By pod with devices, whose settings it got."""
    edits = {a.pod_uid.removeprefix("uid-"): a.edits for a in manager.manager.book}
    return {name: found.envs["PREPARED_FOR"] for name, found in edits.items() if found is not None}


def waiting(manager: HostedManager) -> dict[str, bool]:
    """Pods without devices, and whether that is final."""
    return {found.pod_uid.removeprefix("uid-"): found.is_final for found in manager.manager.pending(RESOURCE)}


def retry(manager: HostedManager) -> None:
    """Whatever was to be tried again is due."""
    manager.time_passes(RETRY_SECONDS)


async def place(manager: HostedManager, plugin: OrderedPlugin, name: str) -> None:
    """As HAMi's scheduler: lock, bind; the agent sees the pod a moment later, when others may have been tried again."""
    plugin.binding = name
    retry(manager)
    # the calls that are made by now come before the pod's own
    await manager.until(lambda: not manager.manager.allocator.in_progress)
    manager.pod_seen(pod(name))
    await manager.until(lambda: name in waiting(manager) or f"uid-{name}" in manager.manager.book.by_pod)


@pytest.mark.parametrize(("retry", "is_swapped"), [("always", True), ("never", False)])
async def test_a_pod_that_was_not_placed_takes_what_is_anothers(
    tmp_path: Path, plugin: OrderedPlugin, retry: str, is_swapped: bool
) -> None:
    async with hosted(tmp_path, allocate_retry={RESOURCE: retry}) as manager:
        await manager.register(plugin)
        manager.pod_seen(pod("thief"))
        await manager.until(lambda: "thief" in waiting(manager))
        for name in ("v0", "v1", "v2"):
            await place(manager, plugin, name)
        if is_swapped:
            assert prepared_for(manager)["thief"] == "v0"
        else:
            assert prepared_for(manager) == {name: name for name in ("v0", "v1", "v2")}
            assert waiting(manager) == {"thief": True}
            assert len(plugin.calls_of("Allocate")) == 4


async def test_a_call_is_on_disk_when_the_plugin_gets_it(tmp_path: Path, plugin: OrderedPlugin) -> None:
    on_disk: list[object] = []

    def answer(device_ids: Sequence[str]) -> api_pb2.ContainerAllocateResponse:
        found = checkpoint_file.read(tmp_path)
        assert found is not None
        on_disk.append(found.allocate_calls)
        return api_pb2.ContainerAllocateResponse(envs={"PREPARED_FOR": "train"})

    plugin.knobs.allocate_answer = answer
    async with hosted(tmp_path, allocate_retry={"*": "never"}) as manager:
        await manager.register(plugin)
        manager.pod_seen(pod("train"))
        await manager.until(lambda: prepared_for(manager) == {"train": "train"})
    assert on_disk == [(("uid-train", "main", RESOURCE),)]


async def test_a_pod_that_ends_while_its_call_is_written_is_not_called_for(
    tmp_path: Path, plugin: OrderedPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin would take the call for another pod's."""
    disk, is_asked = asyncio.Event(), asyncio.Event()

    async def saved(requests: DurableRequests, pod_uid: str | None = None) -> None:
        is_asked.set()
        await disk.wait()

    monkeypatch.setattr(DurableRequests, "saved", saved)
    async with hosted(tmp_path, allocate_retry={"*": "never"}) as manager:
        await manager.register(plugin)
        manager.pod_seen(pod("short"))
        await is_asked.wait()
        manager.pod_gone("uid-short")
        disk.set()
        await place(manager, plugin, "next")
        assert prepared_for(manager) == {"next": "next"}
        assert len(plugin.calls_of("Allocate")) == 1


async def test_what_is_due_while_the_agent_ends_is_done_by_the_next(tmp_path: Path, plugin: OrderedPlugin) -> None:
    """A retry's timer, or a pod that is seen just then; the plugin is not called, and the end is in order."""
    async with hosted(tmp_path) as manager:
        await manager.register(plugin)

        async def at_the_end() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                manager.pod_seen(pod("late"))

        manager.host._tasks.create_task(at_the_end())
        # it has begun
        await asyncio.sleep(0)
    assert plugin.calls_of("Allocate") == []
    plugin.binding = "late"
    async with hosted(tmp_path, [pod("late")]) as manager:
        await manager.until(lambda: prepared_for(manager) == {"late": "late"})
