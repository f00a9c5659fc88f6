"""Nothing is published before it is on disk, also when it was allocated while an earlier state was being written.

Otherwise a kill in between would lose a published allocation, and its device would be allocated again.
"""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from nodedevice_agent.checkpoint import files as checkpoint_file
from nodedevice_agent.checkpoint.writer import Journal
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.lib import filesystem

from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin

RESOURCE = "example.com/fake"
TIMEOUT_SECONDS = 60.0


class Gate:
    """Blocks a write of the checkpoint or of a journal line that names this pod, until it is opened."""

    def __init__(self, pod_uid: str) -> None:
        self.pod = Pod(pod_uid, "default", pod_uid, (Container("main", limits={RESOURCE: 1}),))
        self._loop = asyncio.get_running_loop()
        self.is_reached = asyncio.Event()
        self._is_open = threading.Event()

    def open(self) -> None:
        self._is_open.set()

    def pass_through(self) -> None:
        """From the writing thread."""
        self._loop.call_soon_threadsafe(self.is_reached.set)
        assert self._is_open.wait(TIMEOUT_SECONDS), "the gate was not opened"


@pytest.fixture
async def gates(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Gate]]:
    gates = [Gate("uid-1"), Gate("uid-2")]
    write, append = filesystem.replace_durably, Journal.append

    def pass_through(text: str) -> None:
        for gate in reversed(gates):
            if gate.pod.uid in text:
                gate.pass_through()
                break

    def gated(path: Path, text: str) -> None:
        pass_through(text)
        write(path, text)

    def gated_line(journal: Journal, line: bytes) -> None:
        pass_through(line.decode())
        append(journal, line)

    monkeypatch.setattr(filesystem, "replace_durably", gated)
    monkeypatch.setattr(Journal, "append", gated_line)
    yield gates
    for gate in gates:
        gate.open()


@pytest.fixture
async def manager(tmp_path: Path, gates: list[Gate]) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path) as manager:
        plugin = FakePlugin(RESOURCE, {"dev-0": FakeDevice(), "dev-1": FakeDevice()})
        await manager.register(plugin)
        yield manager
        # a failed test must not block the last write
        for gate in gates:
            gate.open()
        await plugin.stop()


async def test_an_allocation_made_while_another_is_written(manager: HostedManager, gates: list[Gate]) -> None:
    first, second = gates
    manager.pods(first.pod)
    await manager.until(lambda: manager.available(RESOURCE) == 1)
    await first.is_reached.wait()
    saved = asyncio.create_task(manager.host.saved())
    manager.pods(first.pod, second.pod)
    await manager.until(lambda: manager.available(RESOURCE) == 0)
    first.open()
    await second.is_reached.wait()
    assert not saved.done(), "the second pod would be published, and the checkpoint does not contain it"
    second.open()
    await saved
    checkpoint = checkpoint_file.read(manager.folder)
    assert checkpoint is not None
    assert {allocation.pod_uid for allocation in checkpoint.allocations} == {"uid-1", "uid-2"}
