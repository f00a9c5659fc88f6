"""Reconnecting to the plugins of before a restart: which are dialled, under which name they are kept, and what goes."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.records.checkpoint import PluginSocket
from nodedevice_agent.deviceplugin import reconnect_after_restart
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.deviceplugin.reconnect_after_restart import reconnect

from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.fakes.sockets import left_behind
from tests.unit.node_agent.deviceplugin.one_plugin import FAILURE, first_list

GPU, NIC = "example.com/gpu", "example.com/nic"


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[PluginDirectory]:
    with closing(PluginDirectory.take(tmp_path)) as taken:
        yield taken


@pytest.fixture
async def plugins(directory: PluginDirectory) -> AsyncIterator[dict[str, FakePlugin]]:
    """By resource name; each serves on its own socket."""
    found = {name: FakePlugin(name, {f"{name[-3:]}-0": FakeDevice()}) for name in (GPU, NIC)}
    for plugin in found.values():
        await plugin.start(directory.path)
    yield found
    for plugin in found.values():
        await plugin.stop()


def socket_of(plugin: FakePlugin) -> PluginSocket:
    return PluginSocket(plugin.resource_name, plugin.socket_name)


async def connected(directory: PluginDirectory, *sockets: PluginSocket) -> dict[str, tuple[str, str, list[str]]]:
    """By resource name: the file name that it registered, that of the next start, and the devices that it lists."""
    async with AsyncExitStack() as stack:
        found = await reconnect(directory, sockets)
        for connection, _ in found:
            stack.push_async_callback(connection.aclose)
        assert {connection.socket.parent for connection, _ in found} <= {directory.path}
        return {
            connection.resource_name: (connection.socket.name, kept, [*(await first_list(connection)).devices])
            for connection, kept in found
        }


def sockets_in(directory: PluginDirectory) -> set[str]:
    return {path.name for path in directory.path.iterdir() if path.is_socket()}


async def test_each_is_dialled_and_keeps_a_second_name(
    directory: PluginDirectory, plugins: dict[str, FakePlugin]
) -> None:
    gpu, nic = map(socket_of, plugins.values())
    found = await connected(directory, gpu, nic)
    assert found == {GPU: (gpu.name, f".kept-{gpu.name}", ["gpu-0"]), NIC: (nic.name, f".kept-{nic.name}", ["nic-0"])}
    # the first names are gone, as with the kubelet
    assert sockets_in(directory) == {kept for _, kept, _ in found.values()}


async def test_one_that_was_kept_before_is_known_by_the_name_that_it_registered(
    directory: PluginDirectory, plugins: dict[str, FakePlugin]
) -> None:
    gpu = socket_of(plugins[GPU])
    kept = directory.keep(gpu.name)
    directory.clear(but=[kept])
    assert await connected(directory, PluginSocket(GPU, kept)) == {GPU: (gpu.name, kept, ["gpu-0"])}
    assert sockets_in(directory) == {kept}


async def test_sockets_without_a_process_go_and_nothing_is_said(
    directory: PluginDirectory, plugins: dict[str, FakePlugin], caplog: pytest.LogCaptureFixture
) -> None:
    left_behind(directory.path / "dead.sock")
    gpu = socket_of(plugins[GPU])
    found = await connected(directory, PluginSocket(NIC, "dead.sock"), PluginSocket(NIC, "none.sock"), gpu)
    assert [*found] == [GPU]
    assert sockets_in(directory) == {found[GPU][1]}
    assert [record for record in caplog.records if record.name.startswith("nodedevice_agent")] == []


@pytest.mark.parametrize("how", ["hangs", "fails"])
async def test_one_that_does_not_answer_may_register_again(
    directory: PluginDirectory,
    plugins: dict[str, FakePlugin],
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpu, nic = plugins[GPU], plugins[NIC]
    gate = asyncio.Event()
    if how == "hangs":
        nic.knobs.options_gate = gate
        monkeypatch.setattr(reconnect_after_restart, "RECONNECT_SECONDS", 0.2)
    else:
        nic.knobs.options_error = FAILURE
    # the other one may be slower than that here
    assert NIC not in await connected(directory, socket_of(nic), socket_of(gpu))
    assert nic.socket_name not in sockets_in(directory)
    (line,) = (vars(record) for record in caplog.records if vars(record).get("resource_name") == NIC)
    assert (line["levelname"], line["socket"]) == ("WARNING", nic.socket_name)
    assert line["error"] == "timeout" if how == "hangs" else "INTERNAL: out of order" in line["error"]
    gate.set()
