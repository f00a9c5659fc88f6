"""An agent that starts with 256 NodeDevices and 20,000 devices of plugins that all register at once: nobody waits for that.

START_PLUGINS: how many (default 254, beside one that comes meanwhile and one afterwards).
"""

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

from nodedevice_agent.nri.ttrpc import CallFailed
from nodedevice_api.upstream.nri.v1alpha1 import api_pb2

from tests.cluster.observe import Observer, Seen, capacity
from tests.cluster.processes.loopback import fetch
from tests.cluster.waiting import wait_until
from tests.fakes.background import background
from tests.fakes.many_plugins import many_plugins, resource_name
from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.robustness.names.one_node import NODE, OneNode, one_node, until_on_the_node

PLUGINS, DEVICES = int(os.environ.get("START_PLUGINS", "254")), 78
READY_SECONDS, MEANWHILE_SECONDS, AFTERWARDS_SECONDS = 10.0, 10.0, 1.0
SETTLING_SECONDS = 30.0
PATIENCE_SECONDS = 300.0
_PAUSE_SECONDS = 0.05


class PlainContainers:
    """Containers without devices that the runtime creates all the time: how long each took, and why one was not."""

    def __init__(self, runtime: FakeRuntime) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._runtime = runtime

    async def create(self) -> None:
        connection = await self._runtime.plugin()
        while True:
            await asyncio.sleep(_PAUSE_SECONDS)
            began = time.monotonic()
            try:
                await self._one(connection)
            except CallFailed as exc:
                self.failures.append(str(exc))
                connection = await self._runtime.plugin()
            self.seconds.append(time.monotonic() - began)

    async def _one(self, connection: PluginConnection) -> None:
        number = len(self.seconds)
        pod = api_pb2.PodSandbox(id=f"s{number}", name="plain", namespace="n", uid=f"u{number}")
        await connection.create_container(pod, api_pb2.Container(id=f"c{number}", pod_sandbox_id=pod.id, name="c"))


@asynccontextmanager
async def another_plugin(plugin_dir: Path, name: str) -> AsyncIterator[float]:
    """Registers at once; when it did."""
    plugin = FakePlugin(name, {"d0": FakeDevice()})
    await plugin.start(plugin_dir)
    began = time.monotonic()
    await plugin.register()
    try:
        yield began
    finally:
        await plugin.stop()


def all_on_the_node(seen: Seen) -> bool:
    return all(capacity(seen, NODE, resource_name(number)) == DEVICES for number in range(PLUGINS))


async def ready_seconds(node: OneNode, began: float) -> float:
    def is_ready() -> bool:
        try:
            return fetch(f"http://{node.agent.address}/readyz")[0] == HTTPStatus.OK
        except OSError:
            return False

    await asyncio.to_thread(wait_until, is_ready, "ready", PATIENCE_SECONDS)
    return time.monotonic() - began


async def kill(node: OneNode, runtime: FakeRuntime) -> None:
    # the first one's
    await runtime.plugin()
    node.agent.process.kill()
    while runtime.connections:
        await runtime.connections.pop().close()
    # what it left there is no sign of the next one
    (node.agent.plugin_dir / "kubelet.sock").unlink()


async def start_again(node: OneNode, nodes: Observer, runtime: FakeRuntime) -> None:
    before, containers = node.too_many(), PlainContainers(runtime)
    began = time.monotonic()
    node.agent.process.start()
    async with background(containers.create()):
        ready = asyncio.create_task(ready_seconds(node, began))
        while not (node.agent.plugin_dir / "kubelet.sock").exists():
            await asyncio.sleep(_PAUSE_SECONDS)
        print(f"plugins can register after {time.monotonic() - began:.1f} s", flush=True)
        # the others do so now
        await asyncio.sleep(1.0)
        async with another_plugin(node.agent.plugin_dir, "new.example.com/meanwhile") as registered:
            print(f"registered {time.monotonic() - registered:.1f} s after the call", flush=True)
            meanwhile = await until_on_the_node(nodes, "new.example.com/meanwhile", registered, PATIENCE_SECONDS)
            print(f"ready after {await ready:.1f} s; a new plugin on the Node in {meanwhile:.2f} s", flush=True)
            await asyncio.sleep(SETTLING_SECONDS)
            async with another_plugin(node.agent.plugin_dir, "new.example.com/afterwards") as registered:
                afterwards = await until_on_the_node(nodes, "new.example.com/afterwards", registered, PATIENCE_SECONDS)
    too_many = node.too_many() - before
    print(
        f"afterwards in {afterwards:.2f} s; {too_many} times 429; {len(containers.seconds)} containers, the slowest in "
        f"{max(containers.seconds):.2f} s; {node.agent_mib():.0f} MiB",
        flush=True,
    )
    assert containers.failures == []
    assert too_many == 0
    assert ready.result() <= READY_SECONDS
    assert meanwhile <= MEANWHILE_SECONDS
    assert afterwards <= AFTERWARDS_SECONDS


async def test_nobody_waits_for_it() -> None:
    with tempfile.TemporaryDirectory(prefix="nd-") as folder, one_node(Path(folder), "nri") as node:
        async with FakeRuntime(Path(folder) / NODE / "nri.sock") as runtime:
            await asyncio.to_thread(node.agent.start)
            with (
                Observer.nodes(node.control_plane.admin_kubeconfig) as nodes,
                many_plugins(node.agent.plugin_dir, PLUGINS, DEVICES),
            ):
                await asyncio.to_thread(nodes.wait, all_on_the_node, 0, PATIENCE_SECONDS)
                await kill(node, runtime)
                await start_again(node, nodes, runtime)
