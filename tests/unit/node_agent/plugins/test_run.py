"""Which built-in plugins are served, and what becomes of them when the settings change while they run."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from nodedevice_agent.lib.deviceplugin_server.server import CannotServe, DeviceSource
from nodedevice_agent.lib.deviceplugin_server.values import socket_name
from nodedevice_agent.lib.filesystem import FileIdentity
from nodedevice_agent.plugins import run
from nodedevice_agent.plugins.contract import SCOPE
from nodedevice_agent.plugins.generic.settings import GenericSettings, GroupSettings, PathSettings
from nodedevice_agent.plugins.generic.source import GenericSource
from nodedevice_agent.plugins.nvml import serve as nvml_serve
from nodedevice_agent.plugins.nvml.settings import GPUS, NvmlSettings
from nodedevice_agent.plugins.parts import PartsSettings
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource
from nodedevice_common import tasks

A, B, C = "example.com/a", "example.com/b", "example.com/c"


def simulated(name: str, count: int = 1, **more: Any) -> SimulatedSettings:
    return SimulatedSettings(resource_name=name, count=count, **more)


def generic(name: str, path: str = "/dev/x", count: int = 1, **more: Any) -> GenericSettings:
    return GenericSettings(name, [GroupSettings(paths=[PathSettings(path)], count=count)], **more)


class Plugins:
    """A runner whose sources are served by this. events: what began and ended, in order; now: the sources that are served."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner = PluginRunner(folder / "plugins", folder / "state")
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
        socket = FileIdentity(1, len(self.events), 3)
        with more["while_served"](socket):
            found = self.runner.sockets._plugins[socket]
            assert found.resource_name == name
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

    async def settle(self) -> None:
        """Until the runner has done all that apply() asked for."""
        async with asyncio.timeout(60):
            while self.runner._changed.is_set():
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)


@pytest.fixture
async def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Plugins]:
    monkeypatch.setattr(tasks, "_failing", {})
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    made = Plugins(tmp_path)
    monkeypatch.setattr(run, "serve", made.serve)
    task = asyncio.create_task(made.runner.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert made.now == {}


async def test_each_kind_has_a_source_of_its_settings(plugins: Plugins) -> None:
    plugins.runner.apply(PluginSettings(generic=[generic(A)], simulated=[simulated(B)], host_root="/host"))
    await plugins.become(A, B)
    first, second = plugins.now[A], plugins.now[B]
    assert (type(first), type(second)) == (GenericSource, SimulatedSource)
    assert (first._groups, first._root) == (generic(A).groups, "/host")
    assert second._settings == simulated(B)
    assert plugins.scopes == {A: f"{SCOPE} {A}", B: f"{SCOPE} {B}"}


async def test_what_is_applied_before_it_runs_begins_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Plugins(tmp_path)
    monkeypatch.setattr(run, "serve", made.serve)
    made.runner.apply(PluginSettings(simulated=[simulated(A)]))
    for _ in range(2):  # and again when the runner is run again, after a failure
        task = asyncio.create_task(made.runner.run())
        await made.become(A)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert made.events == [f"+{A}", f"-{A}"] * 2


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
    plugins.runner.apply(PluginSettings(generic=[generic(A)], simulated=[simulated(B, 2)]))
    await plugins.become(A, B)
    sources = dict(plugins.now)
    plugins.runner.apply(PluginSettings(generic=[generic(A, "/dev/y")], simulated=[simulated(B, 5)]))
    await plugins.settle()
    assert plugins.now == sources
    assert sources[A]._groups == generic(A, "/dev/y").groups
    assert sources[B]._settings == simulated(B, 5)
    # and is not taken twice
    assert len(plugins.events) == 2


async def test_one_that_fails_with_new_settings_is_started_again(
    plugins: Plugins, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def reconfigure(_: object, settings: SimulatedSettings) -> None:
        if settings.resource_name == A:
            raise ValueError("a bug")

    monkeypatch.setattr(SimulatedSource, "reconfigure", reconfigure)
    plugins.runner.apply(PluginSettings(simulated=[simulated(A), simulated(B)]))
    await plugins.become(A, B)
    first, other = plugins.now[A], plugins.now[B]
    plugins.runner.apply(PluginSettings(simulated=[simulated(A, 2), simulated(B, 2)]))
    await plugins.settle()
    await plugins.become(A, B)
    assert plugins.now[A] is not first
    assert plugins.now[A]._settings == simulated(A, 2)
    assert plugins.now[B] is other
    fields: Any = next(found for found in caplog.records if found.levelname == "ERROR")
    assert (fields.task, fields.resource_name) == ("plugin settings", A)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param([simulated(A)], [generic(A)], id="another kind"),
        pytest.param([simulated(A)], [simulated(A, numa_nodes=2)], id="whether it has a preference"),
        pytest.param([generic(A, count=2)], [generic(A, count=2, parts=PartsSettings())], id="rules of what is shared"),
    ],
)
async def test_what_a_plugin_says_when_it_registers_needs_another_one(
    before: list[Any], after: list[Any], plugins: Plugins
) -> None:
    def of(each: list[Any]) -> PluginSettings:
        is_generic = isinstance(each[0], GenericSettings)
        return PluginSettings(generic=each) if is_generic else PluginSettings(simulated=each)

    plugins.runner.apply(of(before))
    await plugins.become(A)
    first = plugins.now[A]
    plugins.runner.apply(of(after))
    await plugins.settle()
    await plugins.become(A)
    assert plugins.now[A] is not first
    assert plugins.events == [f"+{A}", f"-{A}", f"+{A}"]


async def test_another_place_of_the_hosts_files_needs_another_one(plugins: Plugins) -> None:
    plugins.runner.apply(PluginSettings(generic=[generic(A)]))
    await plugins.become(A)
    plugins.runner.apply(PluginSettings(generic=[generic(A)], host_root="/host"))
    await plugins.settle()
    await plugins.become(A)
    assert plugins.events == [f"+{A}", f"-{A}", f"+{A}"]


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
    settings = NvmlSettings(poll_seconds=9)
    plugins.runner.apply(PluginSettings(nvml=settings, host_root="/host"))
    await plugins.become("nvidia.com/gpu", "nvidia.com/gpu.shared")
    assert Watch.made[:3] == (settings, "/host", plugins.folder / "state")
    assert Watch.made[4] is plugins.runner.sockets.delivery
    assert set(plugins.scopes.values()) == {f"{SCOPE} {GPUS}"}
    # other settings need another watch
    plugins.runner.apply(PluginSettings(nvml=NvmlSettings(poll_seconds=8), host_root="/host"))
    await plugins.settle()
    await plugins.become("nvidia.com/gpu", "nvidia.com/gpu.shared")
    assert Watch.made[0].poll_seconds == 8
    plugins.runner.apply(PluginSettings())
    await plugins.become()


async def test_a_source_is_read_before_it_is_served_as_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []

    class Source(DeviceSource):
        resource_name = A

        async def read(self) -> None:
            events.append("read")

        async def run(self) -> None:
            events.append("run")

    class Socket:
        def __init__(self, *given: Any, make_service: Any, **more: Any) -> None:
            events.append((given, more))
            assert make_service.args == (source,)

        async def run(self) -> None:
            events.append("socket")

    source: Any = Source()
    watcher: Any = object()
    monkeypatch.setattr(run, "RegisteredSocket", Socket)
    await run.serve(source, tmp_path, watcher, rescan_seconds=7.0, while_served=nullcontext)
    more = {"rescan_seconds": 7.0, "while_served": nullcontext}
    assert events == [((A, socket_name(A), tmp_path, watcher), more), "read", "run", "socket"]
