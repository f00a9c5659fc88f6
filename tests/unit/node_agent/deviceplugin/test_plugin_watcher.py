"""The plugins registry directory holds whatever others put there: no name in it ends the watch, or is more than text elsewhere."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import grpc
import msgspec
import pytest
from nodedevice_agent.devicemanager.registration import RegistrationRejected
from nodedevice_agent.deviceplugin import plugin_watcher
from nodedevice_agent.deviceplugin.plugin_watcher import PluginWatcher
from nodedevice_agent.deviceplugin.registration_server import Rejections
from nodedevice_agent.errors import PluginFailed
from nodedevice_common.text import shown

from tests.fakes.background import background
from tests.fakes.polling import until

NAMES = [b"\xff\xfe.sock", b"tab\there.sock", b"line\nfeed.sock", "größe.sock".encode(), b"%41?#.sock", b"good.sock"]


class Host:
    """Of a PluginHost, what the watcher uses."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "plugins"
        self.path.mkdir()
        self.directory = self
        self.rejections = Rejections()


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Path]:
    """With a socket of each name; nobody listens."""
    found = tmp_path / "r"
    found.mkdir()
    with ExitStack() as stack:
        for name in NAMES:
            made = stack.enter_context(socket.socket(socket.AF_UNIX))
            made.bind(os.fsencode(found) + b"/" + name)
        yield found


def sockets(registry: Path) -> dict[Path, Any]:
    return dict(plugin_watcher._sockets(plugin_watcher._files(registry)))


async def test_no_more_sockets_are_asked_than_the_limit(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: set[Path] = set()

    @asynccontextmanager
    async def client(path: Path) -> AsyncIterator[Any]:
        asked.add(path)
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr(plugin_watcher, "registration_client", client)
    monkeypatch.setattr(plugin_watcher, "MAX_SOCKETS", 2)
    monkeypatch.setattr(plugin_watcher, "_POLL_SECONDS", 0.01)
    looks = 0
    present = plugin_watcher._sockets

    def count(files: dict[Path, list[str]]) -> Iterator[tuple[Path, Any]]:
        nonlocal looks
        looks += 1
        return present(files)

    monkeypatch.setattr(plugin_watcher, "_sockets", count)
    async with background(PluginWatcher(registry, cast(Any, Host(tmp_path))).run()):
        await until(lambda: len(asked) == 2)
        at_first, before = {*asked}, looks
        await until(lambda: looks >= before + 3)
        assert asked == at_first
    assert len([r for r in caplog.records if r.message.startswith("too many plugin sockets")]) == 1


async def test_names_without_a_place_are_one_line_of_the_lease(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused: set[str] = set()

    @asynccontextmanager
    async def client(path: Path) -> AsyncIterator[Any]:
        yield path

    async def get_info(client: Any, path: Path) -> Any:
        name = f"a.b/r{len(refused)}"
        kind = plugin_watcher.DEVICE_PLUGIN
        return SimpleNamespace(type=kind, name=name, supported_versions=["v1beta1"], endpoint="")

    async def notify(client: Any, path: Path, problem: str) -> None:
        """Nobody listens."""

    class Full(Host):
        async def connect(self, resource_name: str, socket: Path) -> None:
            refused.add(resource_name)
            why = RegistrationRejected("Names", f"{resource_name}: no room", "more names are refused")
            raise PluginFailed(resource_name, "Register", str(why)) from why

    for name, made in {"registration_client": client, "get_info": get_info, "notify": notify}.items():
        monkeypatch.setattr(plugin_watcher, name, made)
    host = Full(tmp_path)
    async with background(PluginWatcher(registry, cast(Any, host)).run()):
        await until(lambda: len(refused) == len(NAMES))
    assert host.rejections.report() == "more names are refused"


async def test_every_name_is_asked_and_reported_as_text(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: set[bytes] = set()

    @asynccontextmanager
    async def client(path: Path) -> AsyncIterator[Any]:
        asked.add(os.fsencode(path.name))
        raise PluginFailed(str(path), "Dialling", f"no response from {path}")
        yield

    monkeypatch.setattr(plugin_watcher, "registration_client", client)
    host = Host(tmp_path)
    async with background(PluginWatcher(registry, cast(Any, host)).run()):
        await until(lambda: len(asked) == len(NAMES))
    assert asked == {*NAMES}
    sockets = {vars(found).get("socket") for found in caplog.records if found.message == "registration rejected"}
    assert sockets == {shown(registry / os.fsdecode(name)) for name in NAMES}
    # what the Lease carries, and the log
    report = host.rejections.report()
    assert msgspec.json.decode(msgspec.json.encode(report)) == report
    assert all(line.isprintable() for line in report.splitlines())


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(f"/var/lib/kubelet/{'n' * 300}.sock", id="a name that is too long"),
        pytest.param("/var/lib/kubelet/" + "d/" * 2200 + "x.sock", id="a path that is too long"),
        pytest.param("/\udcff.sock", id="no UTF-8"),
        pytest.param("/a\0b.sock", id="NUL"),
        pytest.param("relative.sock", id="relative"),
    ],
)
def test_an_endpoint_that_nothing_can_be_is_rejected(registry: Path, endpoint: str) -> None:
    with pytest.raises(RegistrationRejected, match=r"endpoint .*: must be empty") as rejected:
        plugin_watcher._serving_socket(registry / "good.sock", endpoint, (registry,))
    str(rejected.value).encode()
    assert rejected.value.reason == "Endpoint"


def test_a_directory_that_cannot_be_looked_at_is_empty(registry: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied")

    for call in ("stat", "lstat", "listdir", "scandir"):
        with monkeypatch.context() as broken:
            broken.setattr(os, call, fails)
            assert len(plugin_watcher._files(registry)) in (0, 1)
            assert len(sockets(registry)) in (0, len(NAMES))


def test_directories_are_read_down_to_a_depth_without_hidden_ones(tmp_path: Path) -> None:
    names = [f"d{number}" for number in range(plugin_watcher._MAX_DEPTH + 2)]
    tmp_path.joinpath(*names).mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    below = [tmp_path.joinpath(*names[:depth]) for depth in range(plugin_watcher._MAX_DEPTH + 1)]
    assert list(plugin_watcher._files(tmp_path)) == below


def test_a_directory_that_is_gone_hides_no_other(registry: Path) -> None:
    found = plugin_watcher._sockets({registry / "gone": ["a.sock"], **plugin_watcher._files(registry)})
    assert len(list(found)) == len(NAMES)


async def test_as_many_sockets_as_may_be_are_no_problem(
    registry: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin_watcher, "MAX_SOCKETS", 2)
    watcher = PluginWatcher(registry, cast(Any, Host(tmp_path)))
    present = sockets(registry)
    tasks: Any = SimpleNamespace(create_task=lambda call: call.close())
    for count, logged in ((2, 0), (3, 1), (4, 1), (2, 1), (3, 2)):
        watcher._update(dict(sorted(present.items())[:count]), tasks)
        assert len(caplog.records) == logged
    assert len(watcher._sockets) == 2


async def test_a_plugin_that_hangs_is_asked_for_so_long_and_the_call_is_named(tmp_path: Path) -> None:
    timeouts: list[float] = []

    class Hangs:
        async def GetInfo(self, _: object, timeout: float) -> None:
            await self.NotifyRegistrationStatus(None, timeout)

        async def NotifyRegistrationStatus(self, _: object, timeout: float) -> None:
            timeouts.append(timeout)
            metadata = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, metadata, metadata, "late")

    with pytest.raises(PluginFailed) as failed:
        await plugin_watcher.get_info(cast(Any, Hangs()), tmp_path)
    await plugin_watcher.notify(cast(Any, Hangs()), tmp_path, "")
    assert (failed.value.call, timeouts) == ("GetInfo", [plugin_watcher.INFO_SECONDS, plugin_watcher.NOTIFY_SECONDS])


def test_there_are_sockets(registry: Path) -> None:
    found = {os.fsencode(path.name) for path in sockets(registry)}
    assert found == {*NAMES}


def test_a_link_to_a_socket_is_no_further_one(registry: Path) -> None:
    (registry / "link.sock").symlink_to(registry / "good.sock")
    assert len(sockets(registry)) == len(NAMES)
