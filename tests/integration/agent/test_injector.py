"""Devices through NRI, in process: a device plugin and a runtime on real sockets, and everything between them."""

import asyncio
import logging
import socket
from pathlib import Path

import grpc
import pytest
from nodedevice_agent.devicemanager.pods import Container, ContainerSettings, Pod
from nodedevice_agent.runtime.backend import NriBackend
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.background import background
from tests.fakes.hosted_manager import PATIENCE_SECONDS, HostedManager, hosted
from tests.fakes.kubelet_reader import reader_of
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakePlugin, RpcFailure
from tests.integration.agent.injecting_agent import POD, RESOURCE, agent, made, refused, sandbox, with_pod


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
            backend = NriBackend(settings, manager.host, reader_of(tmp_path), changed.set)
            async with background(backend.run()):
                assert not backend.is_settled
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await changed.wait()
                assert backend.is_settled
