"""A plugin that registers ever new names: what that costs, and that plugins of other domains are served all the same.

INVENTED_NAMES: how many (default 2,000; `make everything` invents 100,000, which takes minutes).
"""

import asyncio
import os
import tempfile
import time
from pathlib import Path

import grpc

from tests.cluster.observe import Observer
from tests.fakes.inventor import Inventor, inventor
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.robustness.names.one_node import OneNode, one_node, until_on_the_node

NAMES = int(os.environ.get("INVENTED_NAMES", "2000"))
MOST_NAMES, MOST_WATCHES, MOST_REQUESTS, MOST_MIB, MOST_LOG_BYTES = 256, 300, 5.0, 128.0, 1_000_000
OLD, NEW = "old.example.com/gpu", "new.example.com/gpu"
SETTLING_SECONDS, COUNTED_SECONDS = 20.0, 20.0
# a plugin's, until there is another exchange of places
AGAIN_SECONDS = 5.0
PATIENCE_SECONDS = 300.0


class Costs:
    """The most of each that was seen."""

    def __init__(self, node: OneNode) -> None:
        self._node = node
        self.names = self.watches = 0
        self.mib = 0.0

    def look(self) -> None:
        self.names = max(self.names, len(self._node.node_devices()))
        self.watches = max(self.watches, self._node.watches())
        self.mib = max(self.mib, self._node.agent_mib())

    def __str__(self) -> str:
        return f"{self.names} NodeDevices, {self.watches} watches, {self.mib:.0f} MiB"


def invent_all(plugin: Inventor, costs: Costs) -> None:
    began = time.monotonic()
    while not plugin.is_over():
        if plugin.tried % 5000 == 0:
            costs.look()
    print(f"{plugin.tried} names in {time.monotonic() - began:.0f} s, {plugin.taken} taken; {costs}", flush=True)


async def serves(node: OneNode, nodes: Observer, name: str) -> FakePlugin:
    """A plugin that registers until it is taken, once the Node shows its device."""
    plugin = FakePlugin(name, {"d0": FakeDevice()})
    await plugin.start(node.agent.plugin_dir)
    began = time.monotonic()
    while not await is_taken(plugin):
        assert time.monotonic() - began < PATIENCE_SECONDS
        await asyncio.sleep(AGAIN_SECONDS)
    seconds = await until_on_the_node(nodes, name, began, PATIENCE_SECONDS)
    print(f"{name} is on the Node after {seconds:.1f} s", flush=True)
    return plugin


async def is_taken(plugin: FakePlugin) -> bool:
    try:
        await plugin.register()
    except grpc.RpcError:
        return False
    return True


async def test_they_cost_a_bound_and_others_are_served() -> None:
    with tempfile.TemporaryDirectory(prefix="nd-") as folder, one_node(Path(folder)) as node:
        await asyncio.to_thread(node.agent.start)
        with Observer.nodes(node.control_plane.admin_kubeconfig) as nodes:
            old = await serves(node, nodes, OLD)
            with inventor(node.agent.plugin_dir, NAMES) as invented:
                costs = Costs(node)
                await asyncio.to_thread(invent_all, invented, costs)
                await asyncio.sleep(SETTLING_SECONDS)
                node.take_requests()
                await asyncio.sleep(COUNTED_SECONDS)
                requests = node.take_requests() / COUNTED_SECONDS
                # a name that has its place registers again, and one that has none
                await old.register()
                await old.wait_for_streams(1)
                new = await serves(node, nodes, NEW)
                await asyncio.to_thread(costs.look)
                await old.stop()
                await new.stop()
        log = node.agent.process.log.stat().st_size
        print(f"{costs}, {requests:.1f} requests/s, {log} bytes of log", flush=True)
        assert costs.names <= MOST_NAMES
        assert costs.watches <= MOST_WATCHES
        assert requests <= MOST_REQUESTS
        assert costs.mib <= MOST_MIB
        assert log <= MOST_LOG_BYTES
