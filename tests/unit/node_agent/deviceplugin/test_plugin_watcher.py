"""Plugins that announce themselves by sockets in the registry directory, which holds whatever others put there."""

import errno
import os
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from nodedevice_agent.deviceplugin import plugin_watcher
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_common import tasks
from nodedevice_common.text import shown
from prometheus_client import REGISTRY

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.fakes.polling import until
from tests.fakes.registrant import Registrant
from tests.unit.node_agent.plugins.generic.test_unread import failing

NAMES = [b"\xff\xfe.sock", b"tab\there.sock", b"line\nfeed.sock", "größe.sock".encode(), b"%41?#.sock", b"good.sock"]


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "r"
    path.mkdir()
    return path


GPU = "example.com/gpu"


@asynccontextmanager
async def announced(path: Path, resource_name: str = GPU, **info: Any) -> AsyncIterator[Registrant]:
    found = Registrant(path, FakePlugin(resource_name, {"d0": FakeDevice()}), **info)
    await found.start()
    yield found
    await found.stop()


async def test_no_more_sockets_are_asked_than_the_limit(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin_watcher, "MAX_SOCKETS", 2)
    names = [f"example.com/r{number}" for number in range(3)]
    async with (
        announced(registry / "0.sock", names[0]) as first,
        announced(registry / "1.sock", names[1]),
        announced(registry / "2.sock", names[2]) as last,
        background(PluginWatcher(registry, manager.host).run()),
    ):
        await until(lambda: [manager.available(name) for name in names] == [1, 1, -1])
        assert len([r for r in caplog.records if r.message.startswith("too many plugin sockets")]) == 1
        assert last.asked == 0
        # there is room for one more
        await first.stop()
        await last.until_accepted()
        assert manager.available(names[1]) == 1


async def test_every_name_is_asked_and_reported_as_text(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Sockets on which nobody listens."""
    monkeypatch.setattr(plugin_watcher, "DIAL_SECONDS", 0.01)
    expected = {shown(registry / os.fsdecode(name)) for name in NAMES}

    def rejected() -> set[str]:
        return {vars(found)["socket"] for found in caplog.records if found.message == "registration rejected"}

    with ExitStack() as stack:
        for name in NAMES:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.bind(os.fsencode(registry) + b"/" + name)
        async with background(PluginWatcher(registry, manager.host).run()):
            await until(lambda: rejected() == expected)
    # what the Lease carries, and the log
    report = manager.host.rejections.report()
    assert msgspec.json.decode(msgspec.json.encode(report)) == report
    assert all(line.isprintable() for line in report.splitlines())


ENDPOINT = "Endpoint", "must be empty"


@pytest.mark.parametrize(
    ("info", "field", "reason"),
    [
        pytest.param({"versions": ["v9"]}, "Version", "v9", id="version"),
        pytest.param({"name": "no name"}, "ResourceName", "no name", id="name"),
        pytest.param({"endpoint": f"/var/lib/kubelet/{'n' * 300}.sock"}, *ENDPOINT, id="a name too long"),
        pytest.param({"endpoint": f"/var/lib/kubelet/{'d/' * 2200}x.sock"}, *ENDPOINT, id="a path too long"),
        pytest.param({"endpoint": "/a\0b.sock"}, *ENDPOINT, id="NUL"),
        pytest.param({"endpoint": "relative.sock"}, *ENDPOINT, id="relative"),
    ],
)
async def test_what_is_invalid_is_answered_once_and_reported_with_the_reason(
    info: dict[str, Any], field: str, reason: str, manager: HostedManager, registry: Path
) -> None:
    def refused() -> float:
        name = "nodedevice_agent_registrations_refused_total"
        return REGISTRY.get_sample_value(name, {"reason": field}) or 0.0

    before = refused()
    watching = background(PluginWatcher(registry, manager.host).run())
    async with announced(registry / "a.sock", **info) as plugin, watching:
        await plugin.until(lambda: bool(plugin.statuses))
        assert reason in plugin.statuses[0]
        await until(lambda: reason in manager.host.rejections.report())
    assert (plugin.asked, manager.manager.resources, refused()) == (1, {}, before + 1)


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
    async with announced(registry / "a.sock") as plugin, background(PluginWatcher(registry, manager.host).run()):
        await until(lambda: manager.available(GPU) == 1)
        with failing(registry, call, number) as asked:
            (registry / "something").touch()
            await until(lambda: len(asked) > 3)
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
    manager: HostedManager, registry: Path, pauses: list[int], failure: RpcFailure | None
) -> None:
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


async def test_one_that_went_while_no_watch_ran_is_disconnected(manager: HostedManager, registry: Path) -> None:
    watcher = PluginWatcher(registry, manager.host)
    async with announced(registry / "a.sock") as plugin:
        async with background(watcher.run()):
            await plugin.until_accepted()
            await until(lambda: manager.available(GPU) == 1)
        # it still serves
        (registry / "a.sock").rename(registry / ".a.sock")
        async with background(watcher.run()):
            await until(lambda: manager.available(GPU) == 0)


async def test_one_whose_registration_failed_after_its_connection_is_disconnected_with_its_socket(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)
    # a dial to the socket that is gone ends soon
    monkeypatch.setattr(plugin_watcher, "DIAL_SECONDS", 0.5)
    fails = [True]

    async def notify(*_: object) -> None:
        await until(lambda: manager.available(GPU) == 1)
        if fails:
            fails.clear()
            (registry / "a.sock").rename(registry / ".a.sock")
            raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(plugin_watcher, "notify", notify)
    async with announced(registry / "a.sock"), background(PluginWatcher(registry, manager.host).run()):
        await until(lambda: not fails and manager.available(GPU) == 0)


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
