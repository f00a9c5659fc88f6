"""The built-in plugins over real sockets, against the smallest device manager there can be: it takes registrations, dials
back and keeps every list. No agent, no root.
"""

import asyncio
import contextlib
import errno
import logging
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import grpc
import grpc.aio
import pytest
from nodedevice_agent.plugins import file_watcher, registered_socket, run, serving
from nodedevice_agent.plugins.control import set_health, set_missing, show
from nodedevice_agent.plugins.core.resource_names import socket_name
from nodedevice_agent.plugins.file_watcher import FileWatcher
from nodedevice_agent.plugins.registration import SocketIdentity, socket_identity
from nodedevice_agent.plugins.run import run_plugins
from nodedevice_agent.plugins.server import Pace, PluginHost
from nodedevice_agent.plugins.settings import SimulatedSettings, plugin_settings
from nodedevice_agent.plugins.simulated import SimulatedSource
from nodedevice_agent.plugins.state_file import state_path
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

from tests.fakes.device_manager import PATIENCE_SECONDS, Manager

GPU = "example.com/gpu"
SERIAL = "example.com/serial"


@pytest.fixture
def plugin_dir(tmp_path: Path) -> Path:
    path = tmp_path / "p"
    path.mkdir()
    return path


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """The tree that stands in for the host's: devices are plain files, which need no root to make."""
    (tmp_path / "host/dev").mkdir(parents=True)
    return tmp_path / "host"


@pytest.fixture
async def manager(plugin_dir: Path) -> AsyncIterator[Manager]:
    manager = Manager(plugin_dir)
    await manager.start()
    yield manager
    await manager.stop()


@contextlib.asynccontextmanager
async def running(raw: dict[str, Any], plugin_dir: Path, state_dir: Path) -> AsyncIterator[None]:
    """All plugins of these settings, until the block ends."""
    task = asyncio.create_task(run_plugins(plugin_settings(raw), plugin_dir, state_dir))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def asking_for(device_ids: list[str]) -> api_pb2.AllocateRequest:
    return api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=device_ids)])


def gpus(count: int = 2, **more: Any) -> dict[str, Any]:
    return {"simulated": [{"resourceName": GPU, "count": count, **more}]}


def serial(host: Path, **group: Any) -> dict[str, Any]:
    groups = [{"paths": [{"path": "/dev/ttyUSB*"}], "allowFiles": True, **group}]
    return {"hostRoot": str(host), "generic": [{"resourceName": SERIAL, "groups": groups}]}


async def test_registers_and_lists_at_once(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(2, numaNodes=2), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        assert [(r.version, r.resource_name) for r in manager.registrations] == [("v1beta1", GPU)]
        assert manager.options[GPU].get_preferred_allocation_available
        assert not manager.options[GPU].pre_start_required
        nodes = [[node.ID for node in device.topology.nodes] for device in manager.lists[GPU][-1]]
        assert nodes == [[0], [1]]


async def test_socket_is_private_and_gone_after_a_clean_stop(
    manager: Manager, plugin_dir: Path, tmp_path: Path
) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        assert stat.S_IMODE((plugin_dir / socket_name(GPU)).stat().st_mode) == 0o600
    assert [path.name for path in plugin_dir.iterdir()] == ["kubelet.sock"]


async def test_waits_for_a_manager_that_comes_later(plugin_dir: Path, tmp_path: Path) -> None:
    late = Manager(plugin_dir)
    async with running(gpus(), plugin_dir, tmp_path):
        await late.start()
        await late.until_listed(GPU, ["gpu-0", "gpu-1"])
    await late.stop()


async def test_waits_for_the_plugin_directory(tmp_path: Path) -> None:
    plugin_dir = tmp_path / "not" / "yet"
    late = Manager(plugin_dir)
    async with running(gpus(), plugin_dir, tmp_path):
        plugin_dir.mkdir(parents=True)
        await late.start()
        await late.until_listed(GPU, ["gpu-0", "gpu-1"])
    await late.stop()


async def test_a_refused_registration_is_tried_again(
    manager: Manager, plugin_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager.refuse = "not today"
    async with running(gpus(), plugin_dir, tmp_path):
        async with asyncio.timeout(PATIENCE_SECONDS):
            while "not today" not in "".join(getattr(record, "error", "") for record in caplog.records):
                await asyncio.sleep(0)
        manager.refuse = ""
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_registers_anew_with_a_restarted_manager(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    """As a kubelet restarts: its own socket goes, then every socket in the directory, then comes a new one."""
    async with running({**gpus(), **serial(tmp_path)}, plugin_dir, tmp_path):
        await manager.until(lambda: {r.resource_name for r in manager.registrations} == {GPU, SERIAL})
        for _ in range(5):
            await manager.stop()
            manager.wipe()
            manager.registrations.clear()
            manager.lists.clear()
            await manager.start()
            await manager.until(lambda: {r.resource_name for r in manager.registrations} == {GPU, SERIAL})
            await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_registers_anew_when_only_kubelet_sock_is_replaced(
    manager: Manager, plugin_dir: Path, tmp_path: Path
) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        other = Manager(plugin_dir)
        await manager.stop()
        await other.start()
        await other.until_listed(GPU, ["gpu-0", "gpu-1"])
        await other.stop()


async def test_a_new_kubelet_sock_that_looks_like_the_old_one_is_noticed(
    manager: Manager, plugin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """File systems give an inode number again at once, and their clock may not have moved on."""
    for module in (registered_socket, serving):
        monkeypatch.setattr(module, "socket_identity", lambda path: SocketIdentity(1, 1, 1) if path.exists() else None)
    other = Manager(plugin_dir)
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        await other.start("another.sock")
        (plugin_dir / "another.sock").rename(plugin_dir / "kubelet.sock")
        await other.until_listed(GPU, ["gpu-0", "gpu-1"])
    await other.stop()


async def test_serves_anew_when_its_own_socket_vanishes(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        manager.lists.clear()
        (plugin_dir / socket_name(GPU)).unlink()
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        assert len(manager.registrations) == 2


async def test_announces_itself_again_when_nobody_listens(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    """A manager that gave the plugin up, but lives on with the same socket."""
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, 1), tmp_path, watcher)
        task = asyncio.create_task(PluginHost(source, plugin_dir, watcher, Pace(rescan_seconds=0.05)).run())
        await manager.until_listed(GPU, ["gpu-0"])
        await manager.hang_up()
        await manager.until(lambda: len(manager.registrations) == 2)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@contextlib.asynccontextmanager
async def newcomer(path: Path) -> AsyncIterator[None]:
    """Another process takes this path over: a live server whose socket is moved there, and is gone with it."""
    newer = grpc.aio.server()
    newer.add_insecure_port(f"unix:{path.with_name('newer')}")
    await newer.start()
    path.with_name("newer").rename(path)
    try:
        yield
    finally:
        path.unlink()
        await newer.stop(None)


async def test_the_newest_process_serves_until_it_ends(
    manager: Manager, plugin_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = plugin_dir / socket_name(GPU)
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        async with newcomer(path):
            taken_over = socket_identity(path)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while "another process serves" not in caplog.text:
                    await asyncio.sleep(0)
            assert socket_identity(path) == taken_over
            manager.lists.clear()
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_its_end_leaves_a_newer_process_its_socket(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    path = plugin_dir / socket_name(GPU)
    async with contextlib.AsyncExitStack() as stack:
        async with running(gpus(), plugin_dir, tmp_path):
            await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
            await stack.enter_async_context(newcomer(path))
        assert path.is_socket()


async def test_all_is_found_by_looking_where_inotify_is_not_to_be_had(
    manager: Manager, plugin_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(file_watcher, "INotify", refuse)
    with FileWatcher() as watcher:
        source = SimulatedSource(SimulatedSettings(GPU, 2), tmp_path, watcher, rescan_seconds=0.05)
        task = asyncio.create_task(PluginHost(source, plugin_dir, watcher, Pace(rescan_seconds=0.05)).run())
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        set_health(tmp_path, GPU, "gpu-1", healthy=False)
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        await manager.stop()
        manager.wipe()
        manager.lists.clear()
        await manager.start()
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_health_follows_the_state_file(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    path = state_path(tmp_path, GPU)
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        path.write_text("unhealthy: [gpu-1]\n")
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        edited = tmp_path / "edited"
        edited.write_text("missing: [gpu-0]\n")
        edited.rename(path)
        await manager.until_listed(GPU, ["gpu-1"])
        path.write_text("count: 3\n")
        await manager.until_listed(GPU, ["gpu-0", "gpu-1", "gpu-2"])


async def test_a_broken_edit_changes_nothing_and_is_said_once(
    manager: Manager, plugin_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = state_path(tmp_path, GPU)
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        set_health(tmp_path, GPU, "gpu-1", healthy=False)
        await manager.until_listed(GPU, {"gpu-0": "Healthy", "gpu-1": "Unhealthy"})
        path.write_text("unhealthy: [gpu-0\n")
        path.write_text("unhealthy: [gpu-0\n")
        path.write_text("unhealthy: []\n")
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        path.write_text("unhealthy: [gpu-0\n")
        os.utime(path)
        (path.parent / "unrelated").write_text("")
        set_path = tmp_path / "good"
        set_path.write_text("missing: [gpu-0]\n")
        set_path.rename(path)
        await manager.until_listed(GPU, ["gpu-1"])
    assert {"gpu-0": "Unhealthy"} not in [{d.ID: d.health for d in devices} for devices in manager.lists[GPU]]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert all(str(path) in cast("Any", record).error for record in errors)
    assert len(errors) <= 2, "one line for each broken edit"


async def test_commands_break_mend_remove_and_return(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        set_health(tmp_path, GPU, "gpu-0", healthy=False)
        await manager.until_listed(GPU, {"gpu-0": "Unhealthy", "gpu-1": "Healthy"})
        set_missing(tmp_path, GPU, "gpu-1", missing=True)
        await manager.until_listed(GPU, {"gpu-0": "Unhealthy"})
        assert [(d.id, d.is_healthy, d.is_missing) for d in show(tmp_path, GPU)] == [
            ("gpu-0", False, False),
            ("gpu-1", True, True),
        ]
        set_missing(tmp_path, GPU, "gpu-1", missing=False)
        set_health(tmp_path, GPU, "gpu-0", healthy=True)
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])


async def test_no_flip_of_five_hundred_is_lost(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        for flip in range(500):
            healthy = flip % 2 == 1
            set_health(tmp_path, GPU, "gpu-0", healthy=healthy)
            await manager.until_listed(GPU, {"gpu-0": "Healthy" if healthy else "Unhealthy", "gpu-1": "Healthy"})
        # each list differs from the one before: nothing was sent twice, nothing left out
        assert len(manager.lists[GPU]) == 501


async def test_the_last_of_many_flips_at_once_is_what_is_listed(
    manager: Manager, plugin_dir: Path, tmp_path: Path
) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        for flip in range(501):
            set_health(tmp_path, GPU, "gpu-0", healthy=flip % 2 == 1)
        await manager.until_listed(GPU, {"gpu-0": "Unhealthy", "gpu-1": "Healthy"})


async def test_files_appear_and_disappear(manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path) -> None:
    (host / "dev/ttyUSB0").touch()
    async with running(serial(host), plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["ttyUSB0"])
        (host / "dev/ttyUSB1").touch()
        await manager.until_listed(SERIAL, ["ttyUSB0", "ttyUSB1"])
        (host / "dev/ttyUSB0").unlink()
        await manager.until_listed(SERIAL, ["ttyUSB1"])
        (host / "dev/ttyUSB1").rename(host / "dev/ttyUSB7")
        await manager.until_listed(SERIAL, ["ttyUSB7"])


async def test_directories_that_come_go_and_come_again(
    manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path
) -> None:
    raw = serial(host, paths=[{"path": "/dev/snd*/by-path/card*"}])
    by_path = host / "dev/snd0/by-path"
    async with running(raw, plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, [])
        for _ in range(3):
            by_path.mkdir(parents=True)
            (by_path / "card0").touch()
            await manager.until(lambda: len(manager.latest(SERIAL) or ()) == 1)
            (by_path / "card0").unlink()
            by_path.rmdir()
            by_path.parent.rmdir()
            await manager.until_listed(SERIAL, [])


async def test_allocate_hands_over_files_mounts_and_env(
    manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path
) -> None:
    (host / "dev/ttyUSB0").symlink_to("/dev/null")
    (host / "dev/firmware").touch()
    raw = serial(
        host,
        paths=[{"path": "/dev/ttyUSB*", "mountPath": "/dev/modem", "permissions": "rwm"}, {"path": "/dev/firmware"}],
        mounts=[{"hostPath": "/run/modem", "readOnly": True}],
        env={"MODEM": "yes"},
        count=2,
    )
    async with running(raw, plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["ttyUSB0-0", "ttyUSB0-1"])
        request = asking_for(["ttyUSB0-0", "ttyUSB0-1"])
        (answer,) = (await manager.dial(SERIAL).Allocate(request)).container_responses
    assert [(d.host_path, d.container_path, d.permissions) for d in answer.devices] == [
        ("/dev/ttyUSB0", "/dev/modem", "rwm")
    ]
    assert [(m.host_path, m.container_path, m.read_only) for m in answer.mounts] == [
        ("/dev/firmware", "/dev/firmware", False),
        ("/run/modem", "/run/modem", True),
    ]
    assert dict(answer.envs) == {"MODEM": "yes"}


async def test_allocate_tells_a_container_its_simulated_devices(
    manager: Manager, plugin_dir: Path, tmp_path: Path
) -> None:
    async with running(gpus(), plugin_dir, tmp_path):
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
        request = asking_for(["gpu-1", "gpu-0"])
        (answer,) = (await manager.dial(GPU).Allocate(request)).container_responses
    assert dict(answer.envs) == {"EXAMPLE_COM_GPU": "gpu-0,gpu-1"}
    assert dict(answer.annotations) == {GPU: "gpu-0,gpu-1"}


async def test_a_real_device_has_its_numa_node(manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path) -> None:
    (host / "dev/ttyUSB0").symlink_to("/dev/null")
    numbers = os.stat("/dev/null").st_rdev
    sysfs = host / f"sys/dev/char/{os.major(numbers)}:{os.minor(numbers)}/device"
    sysfs.mkdir(parents=True)
    (sysfs / "numa_node").write_text("1\n")
    (host / "dev/ttyUSB1").touch()
    async with running(serial(host, allowFiles=False), plugin_dir, tmp_path):
        await manager.until_listed(SERIAL, ["ttyUSB0"])
        assert [node.ID for node in manager.lists[SERIAL][-1][0].topology.nodes] == [1]


async def test_calls_that_cannot_be_answered_say_why(
    manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path
) -> None:
    async with running({**gpus(), **serial(host)}, plugin_dir, tmp_path):
        await manager.until(lambda: {r.resource_name for r in manager.registrations} == {GPU, SERIAL})
        unknown = asking_for(["gpu-0", "gpu-9"])
        with pytest.raises(grpc.aio.AioRpcError, match="gpu-9") as refused:
            await manager.dial(GPU).Allocate(unknown)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "gpu-0" not in (refused.value.details() or "")
        with pytest.raises(grpc.aio.AioRpcError) as unoffered:
            await manager.dial(SERIAL).GetPreferredAllocation(api_pb2.PreferredAllocationRequest())
        assert unoffered.value.code() == grpc.StatusCode.UNIMPLEMENTED


async def test_prefers_devices_of_one_numa_node(manager: Manager, plugin_dir: Path, tmp_path: Path) -> None:
    async with running(gpus(4, numaNodes=2), plugin_dir, tmp_path):
        await manager.until_listed(GPU, [f"gpu-{index}" for index in range(4)])
        request = api_pb2.PreferredAllocationRequest()
        request.container_requests.add(
            available_deviceIDs=["gpu-0", "gpu-1", "gpu-3"], must_include_deviceIDs=["gpu-1"], allocation_size=2
        )
        (answer,) = (await manager.dial(GPU).GetPreferredAllocation(request)).container_responses
    assert list(answer.deviceIDs) == ["gpu-1", "gpu-3"]


@pytest.fixture
def quick_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_FIRST_RESTART_SECONDS", 0.01)


@pytest.mark.usefixtures("quick_restarts")
async def test_one_plugins_failure_takes_no_other_down(
    manager: Manager, plugin_dir: Path, tmp_path: Path, host: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (host / "dev/ttyUSB0").touch()
    state_dir = tmp_path / "state"
    state_dir.write_text("a file where a directory must be")
    async with running({**gpus(), **serial(host)}, plugin_dir, state_dir):
        await manager.until_listed(SERIAL, ["ttyUSB0"])
        assert GPU in [getattr(record, "resource_name", "") for record in caplog.records if record.levelname == "ERROR"]
        state_dir.unlink()
        await manager.until_listed(GPU, ["gpu-0", "gpu-1"])
    assert not any(record.exc_info for record in caplog.records)
