"""A node whose agent works at everything that it does: plugins of others and built-in ones, files, pods, containers, its pages.

A round changes each of these and waits until the API, the runtime or the page shows it. Whoever stands around the agent behaves as
in a cluster: a plugin tries again to register, a runtime to create a container, a kubelet to ask for a page.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar

import grpc.aio
from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakePlugin
from tests.integration.agent_process import GPU, AgentNode, holdings
from tests.integration.configured_node import SERIAL, SIMULATED, ConfiguredNode, simulated
from tests.integration.product_process import ProductProcess
from tests.robustness.faults.trial import PAGES

FLIPPING, COMING, ADDED = "example.com/flipping", "example.com/coming", "example.com/added"
_DEVICES = 4
_FILES = 2
# between two attempts of somebody around the agent; decides nothing
_PAUSE_SECONDS = 0.2
_PATIENCE_SECONDS = 60.0

T = TypeVar("T")


class AgentScene:
    """Everything around one agent; use `agent_scene`."""

    def __init__(self, configured: ConfiguredNode, runtime: FakeRuntime, proxy: FaultProxy) -> None:
        self._configured, self._runtime, self._proxy = configured, runtime, proxy
        self._node: AgentNode = configured.node
        self._connection: PluginConnection | None = None
        self._rounds = self._containers = 0
        self._flipping: FakePlugin
        self._coming: FakePlugin

    @property
    def program(self) -> ProductProcess:
        return self._node.agent

    async def start(self) -> None:
        node = self._node
        registry = node.folder / "r"
        registry.mkdir()
        kubeconfig = await asyncio.to_thread(node.kubeconfig)
        self._proxy.lead(kubeconfig)
        self._configured.start_agent(
            **{
                "--kubeconfig": str(kubeconfig),
                "--delivery": "nri",
                "--nri-socket": str(self._runtime.socket),
                "--plugins-registry-dir": str(registry),
                # devices come and go in each round
                "--flapping-changes": "0",
            }
        )
        for number in range(_FILES):
            (self._configured.files / f"tty{number}").touch()
        await self._configured.configure("serial", self._configured.serial())
        await node.free_plugin(_DEVICES)
        self._flipping = await node.free_plugin(_DEVICES, FLIPPING)
        self._coming = await node.free_plugin(_DEVICES, COMING)

    async def round(self) -> None:
        """Raises AssertionError, which says what did not happen."""
        self._rounds += 1
        await asyncio.to_thread(self._proxy.cut)
        steps = (self._device_flips, self._file_comes_and_goes, self._plugin_comes, self._settings_change)
        await asyncio.gather(self._pod_runs(), self._pages(), *(step() for step in steps))

    async def _device_flips(self) -> None:
        for healthy in (False, True):
            await self._flipping.set_health("d1", healthy=healthy)
            await self._node.until_numbers(_DEVICES, 0, _DEVICES - (not healthy), FLIPPING)

    async def _file_comes_and_goes(self) -> None:
        path = self._configured.files / f"tty-{self._rounds}"
        path.touch()
        await self._node.until(lambda seen: seen["total"] == _FILES + 1, SERIAL)
        path.unlink()
        await self._node.until(lambda seen: seen["total"] == _FILES, SERIAL)

    async def _settings_change(self) -> None:
        """A built-in plugin gets other devices, and another one comes and goes."""
        count = 2 + self._rounds % 2
        await self._configured.configure("simulated", simulated(count))
        await self._configured.until_total(SIMULATED, count)
        await self._configured.configure("added", {"simulated": [{"resourceName": ADDED, "count": 1}]})
        await self._node.until(lambda seen: seen["available"] == 1, ADDED)
        await self._configured.remove("added")
        await self._node.until(lambda seen: seen["available"] == 0, ADDED)

    async def _plugin_comes(self) -> None:
        """One that was stopped, as by an update of its image."""
        await self._coming.stop()
        await self._node.until(lambda seen: seen["endpoint"]["state"] == "Stopped", COMING)
        await self._coming.start(self._node.plugin_dir)
        await _again(self._coming.register, grpc.aio.AioRpcError)
        await self._node.until(lambda seen: seen["endpoint"]["state"] == "Running", COMING)
        await self._node.until_numbers(_DEVICES, 0, _DEVICES, COMING)

    async def _pod_runs(self) -> None:
        # a namespace may have had scenes before this one
        name = f"{self._node.name}-{self._rounds}"
        if self._connection is not None:
            # as containerd does when it is updated
            await self._connection.close()
        uid = await self._node.pod(name)
        seen = await self._node.until(lambda seen: f"{name}/c0" in holdings(seen), GPU)
        sandbox = api_pb2.PodSandbox(id=f"s-{uid}", name=name, namespace=self._node.namespace, uid=uid)
        container = await self._created(sandbox, *holdings(seen)[f"{name}/c0"])
        await self._node.delete_pod(name)
        self._runtime.containers.remove(container)
        self._runtime.pods.remove(sandbox)
        await _again(lambda: self._ended(sandbox, container), CallFailed)
        await self._node.until_numbers(_DEVICES, 0, _DEVICES, GPU)

    async def _created(self, sandbox: api_pb2.PodSandbox, *device_ids: str) -> api_pb2.Container:
        """The container, which has its devices; attempts before it are others, as the kubelet's are."""

        async def created() -> api_pb2.Container:
            self._containers += 1
            name = f"c-{self._containers}"
            state = api_pb2.CONTAINER_RUNNING
            container = api_pb2.Container(id=name, pod_sandbox_id=sandbox.id, name="c0", state=state)
            given = await (await self._connected()).create_container(sandbox, container)
            assert [each.value for each in given.env if each.key == "FAKE_DEVICES"] == [",".join(device_ids)], given
            return container

        self._runtime.pods.append(sandbox)
        container = await _again(created, CallFailed)
        self._runtime.containers.append(container)
        return container

    async def _ended(self, sandbox: api_pb2.PodSandbox, container: api_pb2.Container) -> None:
        connection = await self._connected()
        await connection.container_event("StopContainer", sandbox, container)
        await connection.container_event("RemoveContainer", sandbox, container)
        await connection.remove_pod_sandbox(sandbox)

    async def _connected(self) -> PluginConnection:
        """The runtime's latest connection to the agent."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None if self._connection is None else 0):
                self._connection = await self._runtime.plugin()
        assert self._connection is not None
        return self._connection

    async def _pages(self) -> None:
        for page in PAGES:

            async def is_shown(page: str = page) -> None:
                status, text = await self._node.agent.get(page)
                if status != HTTPStatus.OK:
                    raise OSError(f"{page} answers {status}: {text}")

            await _again(is_shown, OSError)


async def _again(attempt: Callable[[], Awaitable[T]], failure: type[Exception]) -> T:
    """Until it succeeds. Raises the last failure, when the patience is over."""
    deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
    while True:
        try:
            return await attempt()
        except failure:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(_PAUSE_SECONDS)


@contextlib.asynccontextmanager
async def agent_scene(node: AgentNode, proxy: FaultProxy) -> AsyncIterator[AgentScene]:
    """A scene at that node, its agent running; it ends with the block, the node does not."""
    configured = ConfiguredNode(node)
    await configured.label(node.name)
    runtime = FakeRuntime(Path(node.folder, "nri.sock"))
    runtime.request_timeout_ms = 600_000
    async with runtime:
        scene = AgentScene(configured, runtime, proxy)
        try:
            await scene.start()
            yield scene
        finally:
            await configured.close()
