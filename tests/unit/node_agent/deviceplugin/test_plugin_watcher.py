"""The plugins registry directory holds whatever others put there: no name in it ends the watch, or is more than text elsewhere."""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import msgspec
import pytest
from nodedevice_agent.deviceplugin import plugin_watcher
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_common.text import shown

from tests.fakes.background import background
from tests.fakes.hosted_manager import HostedManager, hosted
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.polling import until
from tests.fakes.registrant import Registrant

NAMES = [b"\xff\xfe.sock", b"tab\there.sock", b"line\nfeed.sock", "größe.sock".encode(), b"%41?#.sock", b"good.sock"]


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[HostedManager]:
    async with hosted(tmp_path) as manager:
        yield manager


@pytest.fixture
def registry(tmp_path: Path) -> Path:
    path = tmp_path / "r"
    path.mkdir()
    return path


async def test_no_more_sockets_are_asked_than_the_limit(
    manager: HostedManager, registry: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin_watcher, "MAX_SOCKETS", 2)
    async with AsyncExitStack() as stack:
        names = [f"example.com/r{number}" for number in range(3)]
        found = [
            Registrant(registry / f"{n}.sock", FakePlugin(name, {"d": FakeDevice()})) for n, name in enumerate(names)
        ]
        for registrant in found:
            await registrant.start()
            stack.push_async_callback(registrant.stop)
        await stack.enter_async_context(background(PluginWatcher(registry, manager.host).run()))
        await until(lambda: [manager.available(name) for name in names] == [1, 1, -1])
        assert len([r for r in caplog.records if r.message.startswith("too many plugin sockets")]) == 1
        assert found[2].asked == 0
        # there is room for one more
        await found[0].stop()
        await found[2].until_accepted()
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


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(f"/var/lib/kubelet/{'n' * 300}.sock", id="a name that is too long"),
        pytest.param("/var/lib/kubelet/" + "d/" * 2200 + "x.sock", id="a path that is too long"),
        pytest.param("/a\0b.sock", id="NUL"),
        pytest.param("relative.sock", id="relative"),
    ],
)
async def test_an_endpoint_that_nothing_can_be_is_rejected(
    manager: HostedManager, registry: Path, endpoint: str
) -> None:
    registrant = Registrant(registry / "a.sock", FakePlugin("example.com/gpu"), endpoint=endpoint)
    await registrant.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(registrant.stop)
        await stack.enter_async_context(background(PluginWatcher(registry, manager.host).run()))
        await registrant.until(lambda: bool(registrant.statuses))
        await until(lambda: "must be empty" in manager.host.rejections.report())
    assert "endpoint " in registrant.statuses[0]
    assert "must be empty" in registrant.statuses[0]
    assert not manager.manager.resources
