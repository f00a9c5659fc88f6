"""Runs built-in plugins with given settings, and calls them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from nodedevice_agent.plugins.run import PluginRunner
from nodedevice_agent.plugins.settings import PluginSettings
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

GPU = "example.com/gpu"
SERIAL = "example.com/serial"


@contextlib.asynccontextmanager
async def running(raw: dict[str, Any], plugin_dir: Path, state_dir: Path) -> AsyncIterator[None]:
    """Run all plugins of these settings until the block ends."""
    runner = PluginRunner(plugin_dir, state_dir)
    runner.apply(msgspec.convert(raw, PluginSettings))
    task = asyncio.create_task(runner.run())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def asking_for(device_ids: list[str]) -> api_pb2.AllocateRequest:
    return api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=device_ids)])


def gpus(count: int = 2, **more: Any) -> dict[str, Any]:
    return {"simulated": [{"resourceName": GPU, "count": count, **more}]}


def serial(host: Path, **group: Any) -> dict[str, Any]:
    groups = [{"paths": [{"path": "/dev/ttyUSB*"}], "allowFiles": True, **group}]
    return {"hostRoot": str(host), "generic": [{"resourceName": SERIAL, "groups": groups}]}
