"""Measures an allocation's time beyond the plugin's own Allocate call, and beyond one durable write.

The agent's path without the API server: a pod is seen, the plugin (a process of its own, on its Unix socket) is
called, the allocation is committed and on disk. Compared with a bare gRPC call to the same plugin, and with replacing
a file of the checkpoint's size. All run in turn, so that ratios hold on a noisy machine. The node fills up with 110
pods, one device each.
"""

import asyncio
import contextlib
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc.aio
from nodedevice_agent.checkpoint.format import encode
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc
from prometheus_client import REGISTRY

from hack.bench.load import PODS
from hack.bench.results import Result, judged, ratio, result, worst
from tests.cluster.processes.processes import Process
from tests.fakes.device_manager import OPTIONS
from tests.fakes.hosted_manager import Hosted, running

if TYPE_CHECKING:
    from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1.api_pb2_grpc import DevicePluginAsyncStub

_NAME = "example.com/fake"
_SOCKET = "example.com-fake.sock"
_BURSTS = 50
_PATIENCE_SECONDS = 30


class Node(Hosted):
    """A plugin host with one plugin. changed_at: time of the last change that would be published, by perf_counter."""

    changed_at = 0.0

    @property
    def held(self) -> int:
        return len(self.manager.resources[_NAME].use.holders)

    def see(self, uid: str) -> None:
        self.pod_seen(Pod(uid, "default", uid, (Container("main", limits={_NAME: 1}),)))

    async def until_held(self, count: int) -> None:
        await self.until(lambda: self.held == count)

    def resource_changed(self, resource_name: str) -> None:
        self.changed_at = time.perf_counter()
        super().resource_changed(resource_name)

    async def until_listed(self) -> None:
        known = self.manager.resources
        await self.until(lambda: _NAME in known and known[_NAME].is_live)


def allocation(folder: Path) -> dict[str, Result]:
    return asyncio.run(_measure(folder))


async def _measure(folder: Path) -> dict[str, Result]:
    async with _node(folder) as node:
        results = await _against_bare_parts(node)
        for number in range(PODS):
            node.pod_gone(f"uid-{number}")
        results["checkpoint_writes_110_pods"] = await _bursts(node)
    return results


async def _against_bare_parts(node: Node) -> dict[str, Result]:
    bare, writes, committed, durable = [], [], [], []
    async with grpc.aio.insecure_channel(f"unix:{node.folder / 'plugins' / _SOCKET}", options=OPTIONS) as channel:
        stub = cast("DevicePluginAsyncStub", api_pb2_grpc.DevicePluginStub(channel))
        await _bare(stub)
        for number in range(PODS):
            writes.append(_durable_write(node.folder, encode(node.manager.checkpoint()).encode()))
            # the first one after the write finds cold caches: each of them is first in turn
            if number % 2:
                bare.append(await _bare(stub))
            began = time.perf_counter()
            node.see(f"uid-{number}")
            await node.until_held(number + 1)
            committed.append(node.changed_at - began)
            await node.host.saved()
            durable.append(time.perf_counter() - began)
            if not number % 2:
                bare.append(await _bare(stub))
    over = (statistics.median(durable) - statistics.median(bare)) / statistics.median(writes)
    over_p99 = (worst(durable) - statistics.median(bare)) / worst(writes)
    return {
        "allocation_over_bare_rpc": ratio(committed, bare, 1.5),
        "allocation_durable": judged(over, over_p99, "writes", 1.5, len(durable)),
    }


async def _bursts(node: Node) -> Result:
    """110 pods are bound at once: number of durable writes, lines and whole files, until all of them are durable."""
    measured = []
    for burst in range(_BURSTS):
        await node.until_held(0)
        before = _writes_so_far()
        for number in range(PODS):
            node.see(f"burst-{burst}-{number}")
        await node.until_held(PODS)
        await node.host.saved()
        measured.append(_writes_so_far() - before)
        for number in range(PODS):
            node.pod_gone(f"burst-{burst}-{number}")
    return result(measured, "writes", PODS / 5)


async def _bare(stub: "DevicePluginAsyncStub") -> float:
    request = api_pb2.AllocateRequest(container_requests=[api_pb2.ContainerAllocateRequest(devices_ids=["dev-0"])])
    began = time.perf_counter()
    await stub.Allocate(request, timeout=_PATIENCE_SECONDS)
    return time.perf_counter() - began


def _durable_write(folder: Path, content: bytes) -> float:
    """Replace a file so that it survives a power cut."""
    temporary, path = folder / ".compared.tmp", folder / "compared"
    began = time.perf_counter()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, content)
    os.fsync(descriptor)
    os.close(descriptor)
    os.replace(temporary, path)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(descriptor)
    os.close(descriptor)
    return time.perf_counter() - began


def _writes_so_far() -> float:
    names = ("nodedevice_agent_checkpoint_write_seconds_count", "nodedevice_agent_journal_write_seconds_count")
    return sum(REGISTRY.get_sample_value(name) or 0.0 for name in names)


@contextlib.asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[Node]:
    """A running node: its plugin is registered and listed, and the checkpoint written once."""
    plugin_dir = folder / "plugins"
    command = [sys.executable, "-m", "tests.fakes.plugin_process", "--plugin-dir", str(plugin_dir)]
    plugin = Process("device plugin", [*command, "--resource", _NAME, "--count", str(PODS)], folder / "plugin.log")
    node = Node(folder, plugin_dir, DeviceManager(asyncio.get_running_loop().time()))
    try:
        async with running(node):
            plugin.start()
            await node.until_listed()
            # an allocation before the measured ones, so that connection and code are warm
            node.see("warm")
            await node.until_held(1)
            await node.host.saved()
            node.pod_gone("warm")
            yield node
    finally:
        plugin.kill()
