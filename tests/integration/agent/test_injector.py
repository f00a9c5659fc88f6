"""Devices through NRI, in process: a device plugin and a runtime on real sockets, and everything between them."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import msgspec
import pytest
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_agent.plugins.generic import source as generic_source
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_agent.runtime import backend as nri_backend
from nodedevice_agent.runtime import container_events, device_numbers
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.runtime.injection import Decision, Injection
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2 as plugin_pb2
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import PATIENCE_SECONDS, HostedManager, hosted
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.fakes.sysfs import FakeSysfs

RESOURCE = "example.com/fake"
POD = Pod("uid-1", "default", "train", (Container("main", limits={RESOURCE: 1}), Container("log")))
HELD = {"required-plugins.noderesource.dev": "[ nodedevice ]"}


def answer(device_ids: Sequence[str]) -> plugin_pb2.ContainerAllocateResponse:
    return plugin_pb2.ContainerAllocateResponse(
        envs={"IDS": ",".join(device_ids)},
        devices=[plugin_pb2.DeviceSpec(container_path="/dev/fake", host_path="/dev/null", permissions="rw")],
    )


@pytest.fixture
async def plugin() -> AsyncIterator[FakePlugin]:
    plugin = FakePlugin(RESOURCE, {"a": FakeDevice()})
    plugin.knobs.allocate_answer = answer
    yield plugin
    await plugin.stop()


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[FakeRuntime]:
    async with FakeRuntime(tmp_path / "nri.sock") as runtime:
        yield runtime


def backend_of(manager: HostedManager, folder: Path) -> NriBackend:
    settings = AgentSettings(nri_socket=str(folder / "nri.sock"), kubelet_dir=str(folder / "kubelet"))
    return NriBackend(settings, manager.host, lambda: None)


@asynccontextmanager
async def agent(folder: Path, *pods: Pod) -> AsyncIterator[tuple[HostedManager, NriBackend]]:
    """Connected to any runtime that listens."""
    async with hosted(folder, pods, waits_for_runtime=True) as manager:
        backend = backend_of(manager, folder)
        async with background(backend.run()):
            yield manager, backend


@pytest.fixture
async def manager(tmp_path: Path, plugin: FakePlugin) -> AsyncIterator[HostedManager]:
    """Of an agent with which the plugin is registered."""
    async with agent(tmp_path) as (manager, _):
        await manager.register(plugin)
        yield manager


@pytest.fixture
async def connection(manager: HostedManager, runtime: FakeRuntime) -> PluginConnection:
    """The runtime's side of that agent."""
    return await runtime.plugin()


def sandbox(uid: str = POD.uid, name: str = POD.name, annotations: dict[str, str] = HELD) -> api_pb2.PodSandbox:
    return api_pb2.PodSandbox(id=f"s-{uid}", name=name, namespace="default", uid=uid, annotations=annotations)


def made(name: str = "main", number: int = 1, uid: str = POD.uid) -> api_pb2.Container:
    return api_pb2.Container(id=f"{uid}-{name}-{number}", pod_sandbox_id=f"s-{uid}", name=name)


async def refused(connection: PluginConnection, container: api_pb2.Container) -> str:
    with pytest.raises(CallFailed) as caught:
        await connection.create_container(sandbox(), container)
    return str(caught.value)


async def with_pod(manager: HostedManager, pod: Pod = POD) -> None:
    """The plugin's only device is allocated to it."""
    manager.pods(pod)
    await manager.until(lambda: holders(manager) == {"a": pod.uid})


def holders(manager: HostedManager) -> dict[str, str]:
    return dict(manager.manager.resources[RESOURCE].holders)


async def test_a_container_gets_the_edits_of_its_plugin(manager: HostedManager, connection: PluginConnection) -> None:
    await with_pod(manager)
    adjusted = await connection.create_container(sandbox(), made())
    assert [(e.key, e.value) for e in adjusted.env] == [("IDS", "a")]
    assert [(d.path, d.major, d.minor) for d in adjusted.linux.devices] == [("/dev/fake", 1, 3)]
    assert set(adjusted.annotations) == {"nodedevice.io/devices"}
    assert await connection.validate(sandbox(), made()) == ""
    assert await connection.create_container(sandbox(), made("log")) == api_pb2.ContainerAdjustment()
    assert await connection.validate(sandbox(), made("log")) == ""
    assert "without its devices" in await connection.validate(sandbox(), made(number=2))


async def test_an_allocation_under_way_is_waited_for(
    manager: HostedManager, plugin: FakePlugin, connection: PluginConnection
) -> None:
    gate = plugin.knobs.allocate_gate = asyncio.Event()
    manager.pods(POD)
    await plugin.wait_for_calls("Allocate")
    assert "in progress" in await refused(connection, made())
    asking = asyncio.create_task(connection.create_container(sandbox(), made()))
    # the response to a later call shows that the earlier one has been read
    assert await connection.create_container(sandbox("other", "other", {}), made()) == api_pb2.ContainerAdjustment()
    gate.set()
    assert [e.value for e in (await asking).env] == ["a"]


async def test_a_pod_that_the_api_shows_meanwhile(manager: HostedManager, connection: PluginConnection) -> None:
    assert "API server" in await refused(connection, made())
    asking = asyncio.create_task(connection.create_container(sandbox(), made()))
    assert await connection.create_container(sandbox("other", "other", {}), made()) == api_pb2.ContainerAdjustment()
    manager.pods(POD)
    assert [e.value for e in (await asking).env] == ["a"]


async def test_the_refusal_has_the_plugins_error(
    manager: HostedManager, plugin: FakePlugin, connection: PluginConnection
) -> None:
    plugin.knobs.allocate_error = RpcFailure(grpc.StatusCode.INTERNAL, "the fan is broken")
    manager.pods(POD)
    await manager.until(lambda: bool(manager.manager.pending(RESOURCE)))
    assert "the fan is broken" in await refused(connection, made())


async def test_devices_are_free_when_their_container_ends(manager: HostedManager, connection: PluginConnection) -> None:
    await with_pod(manager)
    await connection.create_container(sandbox(), made())
    later = Pod("uid-2", "default", "next", POD.containers)
    manager.pods(later)
    assert holders(manager) == {"a": POD.uid}
    await connection.container_event("StopContainer", sandbox(), made())
    await manager.until(lambda: holders(manager) == {"a": "uid-2"})
    # repeated, as runtimes do; the next pod keeps its devices
    await connection.state_change(api_pb2.REMOVE_CONTAINER, sandbox(), made())
    await connection.remove_pod_sandbox(sandbox())
    assert holders(manager) == {"a": "uid-2"}


async def test_after_a_restart_from_the_checkpoint(tmp_path: Path, plugin: FakePlugin, runtime: FakeRuntime) -> None:
    async with agent(tmp_path) as (manager, _):
        await manager.register(plugin)
        await with_pod(manager)
        connection = await runtime.plugin()
        mark = (await connection.create_container(sandbox(), made())).annotations
    running = made()
    running.state = api_pb2.CONTAINER_RUNNING
    running.annotations.update(mark)
    runtime.pods, runtime.containers = [sandbox()], [running]
    await plugin.stop()
    async with agent(tmp_path, POD) as (manager, _):
        connection = await runtime.plugin()
        await connection.container_event("StopContainer", sandbox(), made())
        await manager.until(lambda: manager.manager.resources[RESOURCE].settle_until is not None)
        assert "PreStartContainer" in await refused(connection, made(number=2))
        await manager.register(plugin)
        assert [e.value for e in (await connection.create_container(sandbox(), made(number=2))).env] == ["a"]
        assert len(plugin.calls_of("Allocate")) == 1


async def test_a_runtime_that_comes_back_shows_which_containers_have_ended(
    manager: HostedManager, runtime: FakeRuntime, connection: PluginConnection
) -> None:
    await with_pod(manager)
    await connection.create_container(sandbox(), made())
    await connection.close()
    manager.pods()
    assert holders(manager) == {"a": POD.uid}
    ended = made()
    ended.state = api_pb2.CONTAINER_STOPPED
    runtime.pods, runtime.containers = [sandbox()], [ended]
    await runtime.plugin()
    await manager.until(lambda: holders(manager) == {})


async def test_a_container_that_the_runtime_does_not_list_for_long(
    manager: HostedManager,
    runtime: FakeRuntime,
    connection: PluginConnection,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(container_events, "UNLISTED_SECONDS", 0.1)
    await with_pod(manager)
    await connection.create_container(sandbox(), made())
    await connection.close()
    await runtime.plugin()
    assert holders(manager) == {"a": POD.uid}
    manager.pods()
    await manager.until(lambda: holders(manager) == {})
    logged = [r for r in caplog.records if r.message.startswith(("runtime does not list", "runtime has not listed"))]
    assert [(r.levelno, r.__dict__["container_id"]) for r in logged] == [(logging.WARNING, made().id)] * 2


async def test_pod_settings_win_and_are_logged_once(
    manager: HostedManager, connection: PluginConnection, caplog: pytest.LogCaptureFixture
) -> None:
    own = ContainerSettings(frozenset({"IDS"}), is_privileged=True)
    pod = Pod(POD.uid, POD.namespace, POD.name, (Container("main", limits={RESOURCE: 1}, settings=own),))
    created = made()
    created.env.append("IDS=the pod's")
    caplog.set_level(logging.INFO, logger="nodedevice_agent")
    await with_pod(manager, pod)
    for _ in range(2):
        adjusted = await connection.create_container(sandbox(), created)
        assert list(adjusted.env) == []
        assert [d.path for d in adjusted.linux.devices] == ["/dev/fake"]
        assert all(rule.allow for rule in adjusted.linux.resources.devices)
    (logged,) = [r for r in caplog.records if r.message.startswith("pod settings replace edits")]
    assert logged.__dict__["omitted"] == ["env IDS"]


async def test_a_container_that_was_never_started(
    tmp_path: Path,
    plugin: FakePlugin,
    runtime: FakeRuntime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The runtime was killed while it started one, and only the kubelet's cleaning up reports its end. If it is started all the
    same, that is reported.
    """
    # longer than RELEASING_SETTLE_SECONDS, so that nothing else wakes the backend when it is over
    monkeypatch.setattr(container_events, "CREATED_SECONDS", 0.5)
    async with agent(tmp_path) as (manager, backend):
        await manager.register(plugin)
        await with_pod(manager)
        connection = await runtime.plugin()
        adjusted = await connection.create_container(sandbox(), made())
        found = made()
        found.state = api_pb2.CONTAINER_CREATED
        found.annotations.update(adjusted.annotations)
        runtime.pods, runtime.containers = [sandbox()], [found]
        await connection.close()
        connection = await runtime.plugin()
        manager.pods(Pod("uid-2", "default", "next", POD.containers))
        await manager.until(lambda: holders(manager) == {"a": "uid-2"})

        def reason() -> str:
            condition = backend.injectable(snapshot(manager.manager, RESOURCE, backend.not_injected))
            return condition[1] if condition is not None else ""

        assert reason() == "RuntimeConnected"
        await connection.container_event("PostStartContainer", sandbox(), found)
        assert [reason(), reason()] == ["DevicesInUseAfterRelease"] * 2
        await connection.container_event("StopContainer", sandbox(), found)
        assert reason() == "RuntimeConnected"
    (logged,) = [r for r in caplog.records if r.message.startswith("container uses devices that were released")]
    assert (logged.levelno, logged.__dict__["container_id"]) == (logging.ERROR, found.id)


async def test_a_device_that_is_back_under_another_number(
    tmp_path: Path, plugin: FakePlugin, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runtime shows the number that a running container has; what the host's file has by now decides."""
    monkeypatch.setattr(device_numbers, "_SETTLE_SECONDS", 0.0)
    port = tmp_path / "port"
    port.symlink_to("/dev/null")
    device = plugin_pb2.DeviceSpec(container_path="/dev/port", host_path=str(port), permissions="rw")
    plugin.knobs.allocate_answer = lambda _: plugin_pb2.ContainerAllocateResponse(devices=[device])
    async with agent(tmp_path) as (manager, backend):
        await manager.register(plugin)
        await with_pod(manager)
        connection = await runtime.plugin()

        def reason() -> str:
            condition = backend.injectable(snapshot(manager.manager, RESOURCE, backend.not_injected))
            return condition[1] if condition is not None else ""

        def is_renumbered() -> bool:
            # as the publisher does when the list of devices has changed
            backend.resource_changed(RESOURCE)
            return reason() == "DevicesRenumbered"

        adjusted = await connection.create_container(sandbox(), made())
        running = made()
        running.annotations.update(adjusted.annotations)
        running.linux.devices.extend(adjusted.linux.devices)
        await connection.container_event("PostStartContainer", sandbox(), running)
        port.unlink()
        assert not is_renumbered()
        port.symlink_to("/dev/zero")
        await wait_until(is_renumbered)
        await connection.container_event("StopContainer", sandbox(), running)
        await wait_until(lambda: not is_renumbered())
        adjusted = await connection.create_container(sandbox(), made(number=2))
        assert [(d.path, d.major, d.minor) for d in adjusted.linux.devices] == [("/dev/port", 1, 5)]


async def test_selected_devices_that_exchange_names(
    tmp_path: Path, runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The built-in plugin is asked again for the files of a device that a pod holds."""
    # no event of this kernel's is about the files
    monkeypatch.setattr(generic_source, "_RESCAN_SECONDS", 0.1)
    host = FakeSysfs(tmp_path / "host")
    numbers = {"AAA": 0, "BBB": 1}
    for port, (serial, number) in enumerate(numbers.items(), 1):
        host.dongle(f"1-{port}", number, serial)
    groups = [{"select": {"usb": {"vendor": "0403"}, "subsystems": ["tty"]}}]
    plugins = {"hostRoot": str(host.root), "generic": [{"resourceName": RESOURCE, "groups": groups}]}
    async with agent(tmp_path) as (manager, _):
        manager.configure(msgspec.convert(plugins, PluginSettings))
        await wait_until(lambda: manager.available(RESOURCE) == 2)
        manager.pods(POD)

        def given() -> list[str]:
            found = manager.manager.book.of(POD.uid, "main", RESOURCE)
            return [d.host_path for d in found.edits.devices] if found is not None and found.edits else []

        await wait_until(lambda: bool(given()))
        (held,) = holders(manager)
        serial = held.rpartition("-")[2]
        assert given() == [f"/dev/ttyUSB{numbers[serial]}"]
        for port in (1, 2):
            host.unplug(f"1-{port}")
        await wait_until(lambda: manager.available(RESOURCE) == 0)
        for port, (other, number) in enumerate(numbers.items(), 1):
            host.dongle(f"1-{port}", 1 - number, other)
        await wait_until(lambda: given() == [f"/dev/ttyUSB{1 - numbers[serial]}"])
        assert holders(manager) == {held: POD.uid}


async def wait_until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not is_so():
            await asyncio.sleep(0.01)


async def test_a_container_in_the_place_of_one_that_was_never_started_is_published(
    tmp_path: Path, plugin: FakePlugin, runtime: FakeRuntime
) -> None:
    found = made()
    found.state = api_pb2.CONTAINER_CREATED
    runtime.pods, runtime.containers = [sandbox()], [found]
    async with agent(tmp_path) as (manager, backend):
        await manager.register(plugin)
        await with_pod(manager)
        connection = await runtime.plugin()
        assert backend.not_injected(POD.uid, "main", RESOURCE)
        before = len(manager.published)
        await connection.create_container(sandbox(), made(number=2))
        assert not backend.not_injected(POD.uid, "main", RESOURCE)
        assert len(manager.published) == before + 1


async def test_a_runtime_that_does_not_respond_counts_after_the_grace_period(tmp_path: Path) -> None:
    changed = asyncio.Event()
    settings = AgentSettings(nri_socket=str(tmp_path / "nri.sock"), runtime_grace_seconds=0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(settings.nri_socket)
        silent.listen()
        async with hosted(tmp_path, waits_for_runtime=True) as manager:
            backend = NriBackend(settings, manager.host, changed.set)
            async with background(backend.run()):
                assert not backend.is_settled
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await changed.wait()
                assert backend.is_settled


class SlowDisk:
    """Holds up every wait for the disk until `is_done`; `waits` is set once something waits."""

    def __init__(self) -> None:
        self.waits, self.is_done = asyncio.Event(), asyncio.Event()

    async def saved(self) -> None:
        self.waits.set()
        await self.is_done.wait()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SlowDisk:
    monkeypatch.setattr(nri_backend, "WAIT_SECONDS", 30.0)
    disk = SlowDisk()
    monkeypatch.setattr(PluginHost, "saved", lambda host, pod_uid: disk.saved())
    return disk


@asynccontextmanager
async def creating(
    manager: HostedManager, plugin: FakePlugin, disk: SlowDisk
) -> AsyncIterator[tuple[NriBackend, asyncio.Task[ContainerEdits | None]]]:
    """A container of POD whose creation waits for the disk; the wait ends with the block."""
    await manager.register(plugin)
    await with_pod(manager)
    handler = backend_of(manager, manager.folder)
    asked = Sandbox("s", POD.name, POD.namespace, POD.uid), RunningContainer("c", "s", "main")
    task = asyncio.create_task(handler.create_container(*asked))
    await disk.waits.wait()
    yield handler, task
    disk.is_done.set()
    await asyncio.wait([task])


async def test_an_injection_is_computed_once(
    tmp_path: Path, plugin: FakePlugin, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    decisions = []

    usual: Any = Injection.decide

    def decide(self: Injection, sandbox: Sandbox, container: str, *more: Any) -> Decision:
        decisions.append(container)
        return cast("Decision", usual(self, sandbox, container, *more))

    monkeypatch.setattr(Injection, "decide", decide)
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        async with creating(manager, plugin, disk) as (handler, creation):
            pass
        edits = creation.result()
        assert edits is not None
        assert edits.envs == {"IDS": "a"}
        assert decisions == ["main"]
        assert handler.events.using_released(RESOURCE) == ()
        assert manager.manager.containers.find(POD.uid, "c") is not None


async def test_a_device_another_pod_got_is_not_injected(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        manager.manager.containers.synchronized(())
        async with creating(manager, plugin, disk) as (_, creation):
            manager.pods(Pod("uid-2", "default", "next", POD.containers))
            await manager.until(lambda: holders(manager) == {"a": "uid-2"})
        # nothing requires this plugin for the sandbox, and its pod is gone: nothing is injected
        assert creation.result() is None
        assert manager.manager.containers.find(POD.uid, "c") is None


async def test_a_change_during_the_wait_is_injected(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager:
        manager.manager.containers.synchronized(())
        async with creating(manager, plugin, disk) as (_, creation):
            manager.pods()
            await plugin.update({"b": FakeDevice()})
            await manager.until(lambda: set(manager.manager.resources[RESOURCE].devices) == {"b"})
            manager.pods(POD)
            await manager.until(lambda: holders(manager) == {"b": POD.uid})
        edits = creation.result()
        assert edits is not None
        assert edits.envs == {"IDS": "b"}


async def test_a_pod_that_ends_during_the_wait_is_refused(tmp_path: Path, plugin: FakePlugin, disk: SlowDisk) -> None:
    async with hosted(tmp_path, waits_for_runtime=True) as manager, creating(manager, plugin, disk) as (_, creation):
        # the runtime has not been synchronized, so the devices are not free yet
        manager.pods()
        assert holders(manager) == {"a": POD.uid}
        disk.is_done.set()
        with pytest.raises(InjectionRefused, match="is over"):
            await creation
