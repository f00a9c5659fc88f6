"""Plugins that announce themselves by sockets in the registry directory: which are connected, until when, and what is answered."""

import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from nodedevice_agent.deviceplugin import plugin_watcher, redial
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.fakes.polling import until
from tests.fakes.registrant import Registrant

GPU = "example.com/gpu"


@pytest.fixture
async def manager(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[HostedManager]:
    # short, as sockets lie below it
    async with hosted(tmp_path_factory.mktemp("m")) as manager:
        yield manager


@pytest.fixture
def registry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r")


@asynccontextmanager
async def announced(path: Path, resource_name: str = GPU, **info: Any) -> AsyncIterator[Registrant]:
    found = Registrant(path, FakePlugin(resource_name, {"d0": FakeDevice()}), **info)
    await found.start()
    yield found
    await found.stop()


def refused(reason: str) -> float:
    return REGISTRY.get_sample_value("nodedevice_agent_registrations_refused_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    ("info", "field", "reason"),
    [
        pytest.param({"versions": ["v9"]}, "Version", "v9", id="version"),
        pytest.param({"name": "no name"}, "ResourceName", "no name", id="name"),
        pytest.param({"endpoint": "relative.sock"}, "Endpoint", "relative.sock", id="endpoint"),
    ],
)
async def test_what_is_invalid_is_answered_and_reported_with_the_reason(
    info: dict[str, Any],
    field: str,
    reason: str,
    manager: HostedManager,
    registry: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = refused(field)
    async with (
        announced(registry / "a.sock", **info) as plugin,
        background(PluginWatcher(registry, manager.host).run()),
    ):
        await plugin.until(lambda: bool(plugin.statuses))
        assert reason in plugin.statuses[0]
        await until(lambda: reason in manager.host.rejections.report())
    assert (plugin.asked, manager.manager.resources) == (1, {})
    assert refused(field) == before + 1
    (line,) = (vars(record) for record in caplog.records if record.message == "registration rejected")
    assert line["socket"] == str(registry / "a.sock")


async def test_one_that_does_not_answer_is_asked_again_and_reported_once(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_watcher, "FIRST_PAUSE_SECONDS", 0.001)
    before = refused("GetInfo")
    async with announced(registry / "a.sock") as plugin:
        plugin.info_errors = 3
        async with background(PluginWatcher(registry, manager.host).run()):
            await plugin.until_accepted()
    assert plugin.asked == 4
    report = manager.host.rejections.report()
    assert len(report.splitlines()) == 1
    assert refused("GetInfo") == before + 1
    assert "GetInfo" in report


@pytest.mark.parametrize("call", ["scandir", "stat"])
@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.EACCES], ids=errno.errorcode.__getitem__)
async def test_sockets_that_cannot_be_asked_about_stay(
    manager: HostedManager,
    registry: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    number: int,
) -> None:
    monkeypatch.setattr(plugin_watcher, "_RETRY_SECONDS", 0.01)
    real, refused = getattr(os, call), 0

    def refuse(path: Any, *args: Any, **options: Any) -> Any:
        nonlocal refused
        if str(path).startswith(str(registry)):
            refused += 1
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *args, **options)

    async with announced(registry / "a.sock") as plugin, background(PluginWatcher(registry, manager.host).run()):
        await until(lambda: manager.available(GPU) == 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, call, refuse)
            (registry / "something").touch()
            await until(lambda: refused > 3)
            assert manager.available(GPU) == 1
        # it is read again, and what was there has stayed
        async with announced(registry / "b.sock", "example.com/other"):
            await until(lambda: manager.available("example.com/other") == 1)
        assert manager.available(GPU) == 1
        assert len(plugin.plugin.calls_of("ListAndWatch")) == 1
    lines = [vars(record) for record in caplog.records if "cannot list plugin sockets" in record.message]
    assert len({line["path"] for line in lines}) == len(lines) > 0


@pytest.mark.parametrize("failure", [RpcFailure(grpc.StatusCode.UNAVAILABLE), RpcFailure(), None])
async def test_one_whose_stream_ended_is_asked_again(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch, failure: RpcFailure | None
) -> None:
    pauses: list[int] = []

    def noted(number: int, *bounds: float) -> float:
        pauses.append(number)
        return 0.0

    monkeypatch.setattr(redial, "exponential_seconds", noted)
    async with announced(registry / "a.sock") as plugin, background(PluginWatcher(registry, manager.host).run()):
        await until(lambda: manager.available(GPU) == 1)
        plugin.plugin.knobs.stream_end = "after_first"
        plugin.plugin.knobs.stream_error = failure
        await plugin.plugin.end_streams()
        # As long as its streams end, ever later.
        await plugin.plugin.wait_for_calls("ListAndWatch", 4)
        assert pauses[:3] == [0, 1, 2]
        plugin.plugin.knobs.stream_end = "never"
        plugin.plugin.knobs.stream_error = None
        await until(lambda: len(plugin.plugin.calls_of("ListAndWatch")) > 1 and manager.available(GPU) == 1)


async def test_a_watch_that_begins_again_asks_all_of_them_again(manager: HostedManager, registry: Path) -> None:
    """What it had asked before has ended with it."""
    watcher = PluginWatcher(registry, manager.host)
    async with announced(registry / "a.sock") as plugin:
        async with background(watcher.run()):
            await plugin.until_accepted()
        async with background(watcher.run()):
            await plugin.until(lambda: plugin.statuses == ["", ""])


async def test_one_whose_place_another_one_takes_is_connected_no_more(manager: HostedManager, registry: Path) -> None:
    """At once: nobody sees the place without a socket."""
    serving, other = registry / "sockets/s.sock", "example.com/other"
    async with (
        announced(serving, kind="CSIPlugin"),
        announced(registry / "a.sock", endpoint=str(serving)) as plugin,
        announced(registry / ".hidden.sock", other) as follower,
        background(PluginWatcher(registry, manager.host).run()),
    ):
        await plugin.until_accepted()
        await until(lambda: manager.available(GPU) == 1)
        (registry / ".hidden.sock").rename(registry / "a.sock")
        await follower.until_accepted()
        await until(lambda: (manager.available(GPU), manager.available(other)) == (0, 1))
