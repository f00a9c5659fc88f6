"""A device manager whose calls are answered, and as many devices and pods as it may have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Final

import msgspec
from nodedevice_agent.devicemanager.allocation.topology import Topology
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart, Publish
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.devicemanager.pods import Container, Pod
from nodedevice_agent.devicemanager.resources.connections import PluginOptions
from nodedevice_agent.devicemanager.resources.devices import Device, ListedDevices, accept
from nodedevice_agent.devicemanager.resources.list_limit import MAX_DEVICES_OF_DOMAIN
from nodedevice_agent.devicemanager.snapshot import is_settling, snapshot
from nodedevice_agent.deviceplugin import codec
from nodedevice_agent.kube.status import node_device_status
from nodedevice_api.nodedevice import NodeDeviceStatus
from nodedevice_api.parts import PartRules, Placement, part_id
from nodedevice_api.upstream.kubelet.deviceplugin.v1beta1 import api_pb2

NAME: Final = "example.com/gpu"
MANY: Final = MAX_DEVICES_OF_DOMAIN
# names of a node
NAMES: Final = 256
# devices of one container, in the smallest of units: 64 GiB in MiB
UNITS: Final = 65536

Scenario = Callable[[Path], AsyncIterator[None]]


async def beat() -> None:
    """Others have their turn."""
    await asyncio.sleep(0)


class Node:
    """A device manager whose effects are carried out as its host does: calls are answered by the scenario, each in a turn."""

    def __init__(self, topology: Topology | None = None) -> None:
        self.manager = DeviceManager(0.0, topology=topology)
        self.now = 0.0
        self.calls: list[CallAllocate | CallPreferred | CallPreStart] = []
        self.published: dict[str, None] = {}
        self.statuses: dict[str, NodeDeviceStatus] = {}

    def carry_out(self) -> None:
        """After each event."""
        for effect in self.manager.settle(self.now):
            match effect:
                case Publish():
                    self.published[effect.resource_name] = None
                case CallAllocate() | CallPreferred() | CallPreStart():
                    self.calls.append(effect)
        self.manager.next_deadline()
        self.manager.checkpoint()

    def plugin(self, devices: ListedDevices, name: str = NAME, endpoint: int = 1, **options: object) -> None:
        given = msgspec.convert(options, PluginOptions)
        self.manager.connected(name, endpoint, given, self.now)
        self.carry_out()
        self.lists(devices, name, endpoint)

    def lists(self, devices: ListedDevices, name: str = NAME, endpoint: int = 1) -> None:
        self.now += 0.1
        self.manager.listed(name, endpoint, devices, self.now)
        self.carry_out()

    async def seen(self, asked: Pod) -> None:
        """The pod is there, and has what it can have."""
        self.manager.pod_events.seen(asked, self.now)
        await self.follow()

    async def follow(self) -> None:
        """After an event, until nothing more follows from it."""
        self.carry_out()
        await self.settle()

    async def settle(self, most: int = 10_000) -> None:
        """Publish what has changed, answer calls, and tick where that is due at once: one thing at a time, so many at the most."""
        for _ in range(most):
            if not (self.calls or self.published or self._is_due()):
                return
            await beat()
            if self._is_due():
                self.manager.tick(self.now)
                self.carry_out()
                continue
            if self.calls:
                self._answer(self.calls.pop(0))
                continue
            name = next(iter(self.published))
            del self.published[name]
            if not is_settling(self.manager, name):
                seen = snapshot(self.manager, name)
                await beat()
                self.statuses[name] = node_device_status(
                    seen,
                    self.statuses.get(name, NodeDeviceStatus()),
                    wall_time="2026-01-01T00:00:00Z",
                    version="1",
                    delivery="nri",
                )

    def _is_due(self) -> bool:
        deadline = self.manager.next_deadline()
        return deadline is not None and deadline <= self.now

    def _answer(self, call: CallAllocate | CallPreferred | CallPreStart) -> None:
        match call:
            case CallPreferred():
                self.manager.preferred(call.ticket, call.available[-call.size :], self.now)
                self.carry_out()
            case CallAllocate():
                self.manager.allocated(call.ticket, ANSWER, self.now)
                self.carry_out()
            case CallPreStart():
                self.manager.pre_started(call.ticket)
                self.carry_out()


ANSWER: Final[AllocateResponse] = codec.allocate_response(api_pb2.ContainerAllocateResponse(envs={"A": "1"}))


def many(prefix: str = "d", *, healthy: bool = True, nodes: int = 0, count: int = MANY) -> ListedDevices:
    return accept(Device(f"{prefix}{index:06}", healthy, (index % nodes,) if nodes else ()) for index in range(count))


def parts(parents: int, size: int) -> ListedDevices:
    names = (f"GPU-{index:05}" for index in range(parents))
    listed = (Device(part_id(name, number), parent=name) for name in names for number in range(size))
    return accept(listed, part_rules=PartRules(Placement.SAME_PARENT))


def pod(uid: str, *counts: int, name: str = NAME) -> Pod:
    return Pod(
        uid, "ns", uid, tuple(Container(f"c{index}", limits={name: count}) for index, count in enumerate(counts))
    )
