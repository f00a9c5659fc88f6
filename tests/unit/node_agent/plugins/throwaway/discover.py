"""A node has two numbers, of which the agent offers those that are configured."""

from collections.abc import Sequence

from nodedevice_agent.lib.file_reads import FileReads
from nodedevice_agent.plugins.contract import Discovered, Plugin, Reported


async def discover(configured: Sequence[Plugin], host_root: str, reads: FileReads) -> Discovered:
    offered_as = tuple(name for plugin in configured for name in plugin.names())
    numbers = Reported("Number 1", {"number": "1"}, offered_as=offered_as), Reported("Number 2", {"number": "2"})
    return Discovered(numbers, settings={"throwaway": [{"resourceName": "example.com/number", "count": 2}]})
