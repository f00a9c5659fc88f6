"""Through NRI, in process: when the devices of a container that has ended, or was never started, are free again."""

import logging
from pathlib import Path

import pytest
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.devicemanager.snapshot import snapshot
from nodedevice_agent.runtime import container_events
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.hosted_manager import HostedManager
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakePlugin
from tests.integration.agent.injecting_agent import POD, RESOURCE, agent, holders, made, refused, sandbox, with_pod


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
        await manager.until(lambda: manager.manager.resources[RESOURCE].presence.settle_until is not None)
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
