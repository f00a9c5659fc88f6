"""What a container waits for before it is created with its devices."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings

from tests.unit.node_agent.devicemanager.runtime_scenario import RuntimeScenario, container, sandbox
from tests.unit.node_agent.devicemanager.scenario import pod

# Far above anything seen, so that it ends a test that hangs and decides nothing else.
PATIENCE_SECONDS = 60.0


class Disk:
    """Writes only once it may."""

    def __init__(self) -> None:
        self.may_write = asyncio.Event()
        self.waits_for: asyncio.Queue[str] = asyncio.Queue()

    async def saved(self, pod_uid: str) -> None:
        self.waits_for.put_nowait(pod_uid)
        await self.may_write.wait()


async def test_no_device_is_given_before_its_allocation_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodedevice_agent.runtime.backend.WAIT_SECONDS", PATIENCE_SECONDS)
    scenario, disk = RuntimeScenario.with_plugin(1).run(pod("p", gpu=1)), Disk()
    clock = asyncio.get_running_loop().time
    host = SimpleNamespace(manager=scenario.manager, saved=disk.saved, do=scenario.noted, now=clock)
    settings = AgentSettings(kubelet_dir=str(tmp_path))
    backend = NriBackend(settings, cast(PluginHost, host), lambda: None)
    async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
        creation = tasks.create_task(backend.create_container(sandbox("p"), container("p")))
        assert await disk.waits_for.get() == "p"
        # as many turns of the loop as an answer from memory could need
        for _ in range(20):
            await asyncio.sleep(0)
        assert not creation.done()
        disk.may_write.set()
    edits = creation.result()
    assert edits is not None
    assert edits.envs == {"ANSWER": "ok"}
