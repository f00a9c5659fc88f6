"""Which built-in plugins are served, and what becomes of them when the settings change while they run."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe
from nodedevice_agent.lib.filesystem import file_identity
from nodedevice_agent.plugins.contract import SCOPE
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings, PathSettings
from nodedevice_agent.plugins.nvml import serve as nvml_serve
from nodedevice_agent.plugins.nvml.settings import GPUS, NvmlSettings
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_common import tasks

from tests.fakes.background import background

A, B, C = "example.com/a", "example.com/b", "example.com/c"


def simulated(name: str, count: int = 1, **more: Any) -> SimulatedSettings:
    return SimulatedSettings(resource_name=name, count=count, **more)


def generic(name: str, path: str = "/dev/x", count: int = 1, **more: Any) -> GenericSettings:
    return GenericSettings(name, [GroupSettings(paths=[PathSettings(path)], count=count)], **more)


def settings(*plugins: GenericSettings | SimulatedSettings, **more: Any) -> PluginSettings:
    of_files = [each for each in plugins if isinstance(each, GenericSettings)]
    others = [each for each in plugins if isinstance(each, SimulatedSettings)]
    return PluginSettings(generic=of_files, simulated=others, **more)


class Plugins:
    """A runner whose sources are served by this. events: what began and ended, in order; now: the sources that are served."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = PluginRunner(folder / "plugins", folder / "state", self.serve)
        self.events: list[str] = []
        self.now: dict[str, Any] = {}
        self.scopes: dict[str, str] = {}
        self.failures: dict[str, Exception] = {}
        self.changed = asyncio.Event()

    async def serve(self, source: Any, plugin_dir: Path, watcher: object, **more: Any) -> None:
        name = source.resource_name
        assert plugin_dir == self.folder / "plugins"
        self.events.append(f"+{name}")
        if failure := self.failures.pop(name, None):
            raise failure
        self.now[name] = source
        socket = self.folder / name.replace("/", "_")
        socket.touch()
        identity = file_identity(socket)
        assert identity is not None
        with more["while_served"](identity):
            found = self.runner.sockets.find(socket, name)
            assert found is not None
            self.scopes[name] = found.scope
            try:
                self.changed.set()
                await asyncio.Event().wait()
            finally:
                # an end takes a while
                await asyncio.sleep(0)
                del self.now[name]
                self.events.append(f"-{name}")
                self.changed.set()

    async def become(self, *names: str) -> None:
        """Wait until these are served; a minute ends a hang."""
        async with asyncio.timeout(60):
            while self.now.keys() != set(names):
                self.changed.clear()
                await self.changed.wait()

    async def counts(self, *names: str) -> list[int]:
        for name in names:
            await self.now[name].read()
        return [len(self.now[name].devices.latest) for name in names]


@pytest.fixture
async def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    made = Plugins(tmp_path)
    async with background(made.runner.run()):
        yield made
    assert made.now == {}


async def test_what_is_applied_before_it_runs_begins_with_it(tmp_path: Path) -> None:
    made = Plugins(tmp_path)
    made.runner.apply(PluginSettings(simulated=[simulated(A)]))
    for _ in range(2):  # and again when the runner is run again, after a failure
        async with background(made.runner.run()):
            await made.become(A)
    assert made.events == [f"+{A}", f"-{A}"] * 2
    assert made.scopes == {A: f"{SCOPE} {A}"}


async def test_one_whose_settings_are_as_before_runs_on(plugins: Plugins) -> None:
    plugins.runner.apply(PluginSettings(simulated=[simulated(A), simulated(B)]))
    await plugins.become(A, B)
    kept = plugins.now[A]
    plugins.runner.apply(PluginSettings(simulated=[simulated(A), simulated(C)]))
    await plugins.become(A, C)
    assert plugins.now[A] is kept
    assert plugins.events[2:] == [f"-{B}", f"+{C}"], "what ends comes first"
    plugins.runner.apply(PluginSettings())
    await plugins.become()


async def test_new_settings_of_the_same_kind_are_taken_without_an_end(plugins: Plugins) -> None:
    (plugins.folder / "dev").mkdir()
    for name in "xyz":
        (plugins.folder / "dev" / name).symlink_to("/dev/null")
    host = str(plugins.folder)
    plugins.runner.apply(settings(generic(A), simulated(B, 2), host_root=host))
    await plugins.become(A, B)
    sources = dict(plugins.now)
    assert await plugins.counts(A, B) == [1, 2]
    plugins.runner.apply(settings(generic(A, "/dev/?"), simulated(B, 5), simulated(C), host_root=host))
    # it is taken before another one begins
    await plugins.become(A, B, C)
    assert await plugins.counts(A, B) == [3, 5]
    assert {**plugins.now, **sources} == plugins.now
    assert plugins.events == [f"+{A}", f"+{B}", f"+{C}"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(simulated(A), settings(generic(A)), id="another kind"),
        pytest.param(simulated(A), settings(simulated(A, numa_nodes=2)), id="whether it has a preference"),
        pytest.param(generic(A, count=2), settings(generic(A, count=2, parts=PartsSettings())), id="rules of sharing"),
        pytest.param(generic(A), settings(generic(A), host_root="/host"), id="another place of the host's files"),
    ],
)
async def test_what_a_plugin_says_when_it_registers_needs_another_one(
    before: Any, after: PluginSettings, plugins: Plugins
) -> None:
    plugins.runner.apply(settings(before))
    await plugins.become(A)
    first = plugins.now[A]
    plugins.runner.apply(replace(after, simulated=[*after.simulated, simulated(C)]))
    await plugins.become(A, C)
    assert plugins.now[A] is not first
    assert [event for event in plugins.events if event.endswith(A)] == [f"+{A}", f"-{A}", f"+{A}"]


async def test_a_failure_is_the_plugins_own(plugins: Plugins, caplog: pytest.LogCaptureFixture) -> None:
    """Named for what it is, and without a traceback where the node is the reason."""
    plugins.failures[A] = CannotServe("no room")
    plugins.runner.apply(PluginSettings(simulated=[simulated(A), simulated(B)]))
    await plugins.become(A, B)
    assert sorted(plugins.events) == [f"+{A}", f"+{A}", f"+{B}"]
    (record,) = [found for found in caplog.records if found.message == "task failed; retrying it"]
    fields: Any = record
    assert (fields.task, fields.resource_name, fields.error) == ("plugin", A, "no room")
    assert record.exc_info is None


class Watch:
    """In place of the watch of GPUs; it offers two resources."""

    made: tuple[Any, ...] = ()

    def __init__(self, *given: Any) -> None:
        Watch.made = given
        self.wanted: asyncio.Queue[Any] = asyncio.Queue()

    async def run(self) -> None:
        for name in ("nvidia.com/gpu", "nvidia.com/gpu.shared"):
            self.wanted.put_nowait(type("Source", (), {"resource_name": name})())
        await asyncio.Event().wait()


async def test_gpus_are_one_watch_and_a_plugin_for_each_name(plugins: Plugins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml_serve, "GpuWatch", Watch)
    plugins.runner.apply(PluginSettings(nvml=NvmlSettings(poll_seconds=9)))
    await plugins.become("nvidia.com/gpu", "nvidia.com/gpu.shared")
    assert set(plugins.scopes.values()) == {f"{SCOPE} {GPUS}"}
    # other settings need another watch
    plugins.runner.apply(PluginSettings(nvml=NvmlSettings(poll_seconds=8), simulated=[simulated(C)]))
    await plugins.become("nvidia.com/gpu", "nvidia.com/gpu.shared", C)
    assert Watch.made[0].poll_seconds == 8
    plugins.runner.apply(PluginSettings())
    await plugins.become()
