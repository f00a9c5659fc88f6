"""Lists all NodeDevices of an API server into a store, as the operator does at its start, and prints what memory that took.

In MiB above what the process had before: at most, and in the end; and how many NodeDevices are kept with their lists.
"""

import asyncio
import os
import sys
from pathlib import Path

from nodedevice_operator import buffers
from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.lists import NODE_DEVICES, Cluster

from hack.bench.operator.counts import peak_rss_mib, rss_mib
from tests.unit.operator.kube.api_server import client_of


async def _list(folder: Path, url: str) -> None:
    buffers.keep_small()
    async with client_of(folder, url) as client:
        cache, pid = Cache(), os.getpid()
        informer = Informer(NODE_DEVICES, cache, Cluster(client), client)
        before = rss_mib(pid)
        await informer.refresh()
        full = sum(1 for record in cache.node_devices.values() if record.weight)
        print(peak_rss_mib(pid) - before, rss_mib(pid) - before, len(cache.node_devices.by_key), full)


if __name__ == "__main__":
    asyncio.run(_list(Path(sys.argv[1]), sys.argv[2]))
