"""Thousands of pods come and go, and plugins register again hundreds of times: nothing leaks.

LEAK_CYCLES: number of pods. A leak for each of them would show in the thousands; the bounds leave room for what a process
allocates once (a thread of the pool, a cache), and none for what it allocates each time.
"""

import asyncio
import gc
import os
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.files import FILE_NAME
from nodedevice_agent.checkpoint.format import decode
from nodedevice_agent.devicemanager.pods import Container, ContainerKind, Pod
from nodedevice_agent.devicemanager.records.checkpoint import Checkpoint

from tests.fakes.hosted_manager import PATIENCE_SECONDS, HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.plugin_process import plugin_process

CYCLES = int(os.environ.get("LEAK_CYCLES", "500"))
REGISTRATIONS = max(50, CYCLES // 50)
RESOURCE = "example.com/fake"
DEVICES = 100
_AT_ONCE = 50
_POLL_SECONDS = 0.02
_FILES_OF_KEPT_CONNECTIONS = 60
_MOST_RSS_BYTES = 12 * 1024 * 1024


@dataclass(frozen=True)
class Footprint:
    """Resources of this process: bytes in RAM, open files, threads, and objects that the garbage collector tracks."""

    rss_bytes: int
    files: int
    threads: int
    objects: int

    @classmethod
    def now(cls) -> "Footprint":
        gc.collect()
        process = psutil.Process()
        return cls(process.memory_info().rss, process.num_fds(), process.num_threads(), len(gc.get_objects()))


def verify_nothing_grew(before: Footprint, after: Footprint, cycles: int) -> None:
    assert after.objects - before.objects < cycles // 4, f"objects: {before} {after}"
    # a checkpoint that is being written, a plugin that is being connected
    assert after.files - before.files <= 8, f"files: {before} {after}"
    # the pool for blocking calls fills up to six
    assert after.threads - before.threads <= 8, f"threads: {before} {after}"
    assert after.rss_bytes - before.rss_bytes < _MOST_RSS_BYTES, f"memory: {before} {after}"


def pod(number: int) -> Pod:
    """An init container whose device the app container reuses, and a second app container."""
    init = Container("init", ContainerKind.INIT, {RESOURCE: 1})
    return Pod(
        f"uid-{number}",
        "default",
        f"pod-{number}",
        (init, Container("main", limits={RESOURCE: 1}), Container("side", limits={RESOURCE: 1})),
    )


async def come_and_go(manager: HostedManager, first: int, count: int) -> None:
    for start in range(first, first + count, _AT_ONCE):
        pods = [pod(number) for number in range(start, min(start + _AT_ONCE, first + count))]
        manager.pods(*pods)
        # each pod of three containers has two devices
        await available(manager, DEVICES - 2 * len(pods))
        await manager.host.saved()
        manager.pods()
        await available(manager, DEVICES)
        # what the test itself has recorded
        manager.published.clear()


async def available(manager: HostedManager, count: int) -> None:
    """Wait until so many devices are available."""
    await manager.until(lambda: manager.available(RESOURCE) == count)


async def until_written(state_dir: Path) -> None:
    """Wait until neither checkpoint nor journal names a pod: the encoder keeps what was written last for the next write."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while held_in(checkpoint_file.read(state_dir)) or held_in(decode((state_dir / FILE_NAME).read_text())):
            await asyncio.sleep(_POLL_SECONDS)


def held_in(checkpoint: Checkpoint | None) -> bool:
    return checkpoint is None or checkpoint.allocations != ()


async def test_pods_do_not_leak(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warm_up = max(_AT_ONCE, CYCLES // 10)
    # in a process of its own, so that its memory is not counted
    async with hosted(tmp_path) as manager, plugin_process(manager.plugin_dir, RESOURCE, DEVICES):
        await available(manager, DEVICES)
        await come_and_go(manager, 0, warm_up)
        await until_written(tmp_path)
        before = Footprint.now()
        await come_and_go(manager, warm_up, CYCLES)
        await until_written(tmp_path)
        after = Footprint.now()
        assert not manager.manager.book.by_pod
        assert not manager.manager.resources[RESOURCE].use.reserved
        assert manager.manager.next_deadline() is None
    verify_nothing_grew(before, after, CYCLES)
    checkpoint = checkpoint_file.read(tmp_path)
    assert checkpoint is not None
    assert checkpoint.allocations == ()
    assert sorted(path.name for path in tmp_path.iterdir()) == [FILE_NAME, "plugins"]
    with capsys.disabled():
        print(f"\n{CYCLES} pods: {before} -> {after}")


@pytest.mark.kubelet("scenario 41", "weak spot 8")
async def test_registrations_do_not_leak(tmp_path: Path) -> None:
    plugin = FakePlugin(RESOURCE, {"dev-0": FakeDevice()})
    async with hosted(tmp_path) as manager:
        await plugin.start(manager.plugin_dir)
        try:
            await register_often(plugin, 20)
            before = Footprint.now()
            await register_often(plugin, REGISTRATIONS)
            manager.published.clear()
            after = Footprint.now()
        finally:
            await plugin.stop()
    # a few connections are kept for a while, each with two files here and two at the plugin, which is in this process, too
    assert after.files - before.files <= _FILES_OF_KEPT_CONNECTIONS, f"{before} {after}"
    assert after.threads - before.threads <= 8, f"{before} {after}"
    # a connection is hundreds of objects
    assert after.objects - before.objects < 50 * REGISTRATIONS, f"{before} {after}"


async def register_often(plugin: FakePlugin, times: int) -> None:
    """Over the same socket: newer connections replace older ones, and those streams end."""
    for _ in range(times):
        lists = plugin.lists_sent
        async with asyncio.timeout(PATIENCE_SECONDS):
            await plugin.register()
            await plugin.wait_for_lists(lists + 1)
    plugin.calls.clear()
