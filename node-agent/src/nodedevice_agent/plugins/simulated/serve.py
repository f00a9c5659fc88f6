"""Serves a resource of simulated devices."""

from nodedevice_agent.plugins.run import Node
from nodedevice_agent.plugins.simulated.settings import SimulatedSettings
from nodedevice_agent.plugins.simulated.source import SimulatedSource


async def run(settings: SimulatedSettings, node: Node) -> None:
    source = SimulatedSource(settings, node.state_dir, node.watcher, node.room)
    await node.serve(source, source.reconfigure)
