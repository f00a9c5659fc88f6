"""Serves GPUs: one watch for all resource names, and each name once it has a device to list."""

import asyncio
from functools import partial

from nodedevice_agent.plugins.nvml.settings import GPUS, NvmlSettings
from nodedevice_agent.plugins.nvml.watch import GpuWatch
from nodedevice_agent.plugins.run import Node, until_ended


async def run(settings: NvmlSettings, node: Node) -> None:
    labels, injector = node.sockets.node_labels, node.sockets.injector
    watch = GpuWatch(settings, node.host_root, node.state_dir, node.watcher, injector, labels)
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(until_ended(GPUS, watch.run))
            while True:
                source = await watch.wanted.get()
                group.create_task(until_ended(source.resource_name, partial(node.serve, source)))
    finally:
        watch.end_grace()
