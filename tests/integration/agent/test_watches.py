"""A watch over which nothing comes any more. The real agent, and a proxy before the real API server."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from nodedevice_agent import agent as agents
from nodedevice_agent.agent import Agent
from nodedevice_agent.checkpoint.files import make_state_dir
from nodedevice_agent.deviceplugin.plugin_dir import PluginDirectory
from nodedevice_agent.health import AgentHealth
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.lib.deviceplugin_server.built_in import BuiltInSockets
from nodedevice_agent.settings import AgentSettings
from nodedevice_api.names import node_device_name
from nodedevice_kube import list_watch

from tests.fakes.background import background
from tests.fakes.fault_proxy import FaultProxy
from tests.fakes.plugin import FakeDevice, FakePlugin
from tests.integration.agent_process import GPU, AgentNode, condition, holdings, until

SILENCE_SECONDS = 3.0


@asynccontextmanager
async def agent_here(node: AgentNode, kubeconfig: str, health: AgentHealth) -> AsyncIterator[None]:
    """The agent in this process, with a plugin of two devices."""
    settings = AgentSettings(
        node_name=node.name, kubeconfig=kubeconfig, plugin_dir=str(node.plugin_dir), state_dir=str(node.state_dir)
    )
    make_state_dir(node.state_dir)
    cluster = KubeClient.connect(Path(kubeconfig))
    plugin = FakePlugin(GPU, {"d0": FakeDevice(), "d1": FakeDevice()})
    with closing(PluginDirectory.take(node.plugin_dir)) as directory:
        agent = Agent(settings, directory, cluster, health, lambda _: None, BuiltInSockets())
        async with background(agent.run()):
            await agent.is_serving.wait()
            await plugin.join(node.plugin_dir)
            await until(lambda: node.status() != {}, lambda: "its NodeDevice is published")
            yield
    await plugin.stop()
    await cluster.close()


async def until_shown(node: AgentNode, current: str, *pods: str) -> None:
    """That status of WatchesCurrent, and these pods with devices."""

    def is_shown() -> bool:
        status = node.status()
        held = {key.partition("/")[0] for key in holdings(status)}
        return (condition(status, "WatchesCurrent").get("status"), held) == (current, {*pods})

    await until(is_shown, lambda: f"WatchesCurrent {current} and {pods}: {node.status()}")


async def keep_changing(node: AgentNode, *what: str) -> None:
    """Often enough for its watch never to be silent."""
    for number in itertools.count():
        await asyncio.to_thread(node.control_plane.kubectl, "annotate", *what, "--overwrite", f"number={number}")
        await asyncio.sleep(SILENCE_SECONDS / 10)


async def test_a_frozen_watch_is_given_up_and_shown_and_pods_still_get_devices(
    agent_node: AgentNode, proxy: FaultProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_watch, "SILENCE_SECONDS", SILENCE_SECONDS)
    monkeypatch.setattr(list_watch, "GRACE_SECONDS", 1.0)
    monkeypatch.setattr(agents, "_BEAT_SECONDS", 0.1)
    health = AgentHealth()
    await agent_node.pod("one")
    by_proxy = await asyncio.to_thread(agent_node.kubeconfig_by, proxy.url)
    changing_pod = ("pod", "one", "--namespace", agent_node.namespace)
    async with (
        agent_here(agent_node, by_proxy, health),
        background(keep_changing(agent_node, "nodedevice", node_device_name(agent_node.name, GPU))),
    ):
        async with background(keep_changing(agent_node, *changing_pod)):
            await until_shown(agent_node, "True", "one")
        proxy.frozen_kinds = frozenset({"pods"})
        await agent_node.pod("two")
        await until_shown(agent_node, "False", "one", "two")
        # lists succeed, and are no proof that the watch works
        stale = condition(agent_node.status(), "WatchesCurrent")
        assert (stale["reason"], health.ready()) == ("WatchStale", (False, "watches: stale: pods"))
        await asyncio.sleep(2 * SILENCE_SECONDS)
        assert condition(agent_node.status(), "WatchesCurrent") == stale
        proxy.frozen_kinds = frozenset()
        async with background(keep_changing(agent_node, *changing_pod)):
            await until_shown(agent_node, "True", "one", "two")
            await until(lambda: health.ready() == (True, "ok"), lambda: str(health.ready()))
