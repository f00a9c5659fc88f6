"""A task that is for showing, or for one plugin, fails, whatever it raises: the agent goes on, and the task is run again.

One that is vital ends the agent, in a sentence that names it.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from nodedevice_agent.deviceplugin import plugin_watcher
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.errors import TaskEnded
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_common import tasks

from tests.fakes.background import background
from tests.fakes.failing_task import FAILURES, Failing
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.sockets import listening
from tests.unit.node_agent.idle_agent import KUBELET_TASKS, TASKS, running, settings
from tests.unit.test_tasks import RETRIED, VITAL

GPU: Final = "example.com/gpu"
# a part of the one before, or tried below
ELSEWHERE: Final = {
    *("agent", "holdings", "plugin", "plugin connection", "registry socket"),
    # where there are nine names: its visits are apart, see kube/test_parked.py
    "parked nodedevices",
}


def delivery_of(task: str) -> str:
    """A delivery with which an agent has this task."""
    return "kubelet" if task in KUBELET_TASKS else "nri"


async def first(event: asyncio.Event, task: asyncio.Task[None]) -> None:
    """Until the event, or the end of the task; a minute ends a hang."""
    waiting = asyncio.create_task(event.wait())
    async with asyncio.timeout(60):
        await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


@pytest.mark.parametrize("name", sorted(RETRIED["agent"] - ELSEWHERE))
async def test_what_is_shown_is_run_again_and_ends_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(tmp_path, delivery=delivery_of(name), observe=True)
    plugin = FakePlugin(GPU, {"d0": FakeDevice()})
    async with running(given, monkeypatch, name, FAILURES) as (bad, task):
        await plugin.join(Path(given.plugin_dir))
        await first(bad.is_well, task)
        assert not task.done()
        assert bad.times == len(FAILURES) + 1
        assert any(problem.startswith(name) for problem in tasks.problems())
        # one of many says which one it is
        assert (GPU in "".join(tasks.problems())) is (name in ("nodedevice", "kubelet endpoint"))
    await plugin.stop()
    assert tasks.problems() == ()


@pytest.mark.parametrize("name", sorted(VITAL["agent"].keys() - ELSEWHERE))
async def test_what_is_vital_ends_the_agent_in_a_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = settings(tmp_path, delivery=delivery_of(name), observe=True)
    async with running(given, monkeypatch, name, FAILURES[:1]) as (_, task):
        async with asyncio.timeout(60):
            await asyncio.wait([task])
        ended = tasks.innermost(task.exception() or AssertionError())
    assert isinstance(ended, TaskEnded)
    text = str(ended)
    assert text.startswith(f"the task {name} has ended (OSError: ")
    assert text.endswith("which is a bug: report it with the log; exiting for a restart")
    assert "\n" not in text


def test_every_task_is_tried() -> None:
    assert TASKS.keys() | KUBELET_TASKS.keys() | ELSEWHERE == VITAL["agent"].keys() | RETRIED["agent"]


async def test_one_socket_of_the_registry_keeps_no_other_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad, good = Failing(*FAILURES), Failing()

    @asynccontextmanager
    async def client(path: Path) -> AsyncIterator[None]:
        await (bad if path.name == "bad.sock" else good).work()
        yield

    monkeypatch.setattr(plugin_watcher, "registration_client", client)
    host = cast(Any, SimpleNamespace(directory=SimpleNamespace(path=tmp_path)))
    with listening(tmp_path / "bad.sock"), listening(tmp_path / "good.sock"):
        async with background(PluginWatcher(tmp_path, host).run()), asyncio.timeout(60):
            await bad.is_well.wait()
            assert (bad.times, good.times) == (6, 1)


async def test_a_plugin_that_fails_or_takes_no_settings_is_started_again_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    bad, good = Failing(*FAILURES), Failing()

    async def serve(source: Any, *_: object, **__: object) -> None:
        await (bad if source.resource_name == "example.com/bad" else good).work()

    monkeypatch.setattr("nodedevice_agent.plugins.run.serve", serve)
    names = ("example.com/bad", "example.com/good")
    runner = PluginRunner(tmp_path, tmp_path)
    runner.apply(PluginSettings(simulated=[SimulatedSettings(resource_name=name, count=1) for name in names]))
    task = asyncio.create_task(runner.run())
    await first(bad.is_well, task)
    assert (task.done(), bad.times, good.times) == (False, 6, 1)

    def take(running: Any, plugin: Any) -> bool:
        if plugin.settings.resource_name == "example.com/bad":
            raise FAILURES[1]
        return True

    monkeypatch.setattr("nodedevice_agent.plugins.run.Node.take", take)
    bad.is_well.clear()
    runner.apply(PluginSettings(simulated=[SimulatedSettings(resource_name=name, count=2) for name in names]))
    await first(bad.is_well, task)
    assert (task.done(), bad.times, good.times) == (False, 7, 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
