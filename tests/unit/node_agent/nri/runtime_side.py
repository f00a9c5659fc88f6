"""The runtime's side of a session with the agent, a pod and a container of it: as NRI names them, and as the agent does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from nodedevice_agent.devicemanager.runtime import ContainerState, RunningContainer, RuntimeDevice, Sandbox
from nodedevice_agent.nri.host_devices import HostDeviceStat
from nodedevice_agent.nri.session import Session, SessionEnded
from nodedevice_api.names import CONTAINER_DEVICES_ANNOTATION, REQUIRED_PLUGINS_ANNOTATION
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder

HELD = {REQUIRED_PLUGINS_ANNOTATION: "[ nodedevice ]"}
POD = api_pb2.PodSandbox(
    id="sandbox-1", name="trainer", namespace="team-a", uid="uid-1", labels={"app": "x"}, annotations={"a": "b"} | HELD
)
CONTAINER = api_pb2.Container(
    id="container-1",
    pod_sandbox_id="sandbox-1",
    name="main",
    state=api_pb2.CONTAINER_CREATED,
    annotations={"c": "d", CONTAINER_DEVICES_ANNOTATION: "vendor.com/a=1"},
    env=["PATH=/bin", "EMPTY="],
    linux=api_pb2.LinuxContainer(devices=[api_pb2.LinuxDevice(path="/dev/null", type="c", major=1, minor=3)]),
)
SANDBOX = Sandbox("sandbox-1", "trainer", "team-a", "uid-1")
# when a container is created in it
DECIDING = Sandbox("sandbox-1", "trainer", "team-a", "uid-1", HELD)
MARK = {CONTAINER_DEVICES_ANNOTATION: "vendor.com/a=1"}
FILES = (RuntimeDevice("/dev/null", "c", 1, 3),)
RUNNING = RunningContainer("container-1", "sandbox-1", "main", ContainerState.CREATED, (), FILES, MARK)
CREATED = replace(RUNNING, env=("PATH=/bin", "EMPTY="))


@asynccontextmanager
async def registered(handler: Recorder, runtime: FakeRuntime, index: str = "10") -> AsyncIterator[PluginConnection]:
    """The runtime's side of a session."""
    async with runtime:
        session = asyncio.create_task(Session(handler, index, HostDeviceStat()).run(runtime.socket))
        plugin = await runtime.plugin()
        yield plugin
        assert not session.done()
        await plugin.close()
        with pytest.raises(SessionEnded, match="the container runtime closed the connection"):
            await session


@asynccontextmanager
async def joined(handler: Recorder, runtime: FakeRuntime) -> AsyncIterator[PluginConnection]:
    """The runtime's side of a session whose first two events have been handled."""
    async with registered(handler, runtime) as plugin:
        assert (await handler.next())[0] == "synchronized"
        assert (await handler.next())[0] == "connected"
        yield plugin
