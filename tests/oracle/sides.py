"""One maker with its plugins: carries out steps, the same for both makers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import grpc

from tests.fakes.plugin import FakeDevice, FakePlugin, RpcFailure
from tests.oracle.maker import Held, Maker, Numbers, Verdict, container_name
from tests.oracle.steps import Admit, Ctr, Dev, Machine

_FAILURE = RpcFailure(grpc.StatusCode.INTERNAL, "made to fail")


@dataclass(frozen=True)
class Asked:
    """One GetPreferredAllocation: how many, how many of them settled, and out of which others."""

    size: int
    settled: int
    others: tuple[str, ...]


@dataclass(frozen=True)
class Seen:
    """What a step led to on one side. allocated: sizes of the Allocate calls by resource, in order."""

    held: Held
    numbers: Numbers
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    allocated: Mapping[str, list[int]] = field(default_factory=dict)
    asked: Mapping[str, list[Asked]] = field(default_factory=dict)


class Side:
    """A maker, its plugins by resource, and the pods that are there."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.plugins: dict[str, FakePlugin] = {}
        self.pods: dict[str, tuple[Ctr, ...]] = {}
        self._lists: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()
        self._sockets = 0

    async def start(self, machine: Machine) -> None:
        self._machine = machine
        await self.maker.start(machine)

    async def stop(self) -> None:
        """End the manager, then the plugins: as a node does when only its manager is ended."""
        try:
            await self.maker.stop()
        finally:
            for plugin in self.plugins.values():
                await plugin.stop()

    async def register(self, resource: str, devices: tuple[Dev, ...], *, advice: bool) -> None:
        old = self.plugins.get(resource)
        self._sockets += 1
        plugin = FakePlugin(resource, _fakes(devices), preferred_available=advice, socket_name=f"{self._sockets}.sock")
        self.plugins[resource] = plugin
        await plugin.start(self.maker.plugin_dir)
        await self._announce(plugin)
        if old is not None:
            await self._part(old)

    async def update(self, resource: str, devices: tuple[Dev, ...]) -> None:
        plugin = self.plugins.get(resource)
        if plugin is not None:
            await plugin.update(_fakes(devices))
            await self._list_came(resource)

    async def stop_plugin(self, resource: str) -> None:
        plugin = self.plugins.pop(resource, None)
        if plugin is not None:
            await self._part(plugin)

    def set_failing(self, resource: str, *, is_failing: bool) -> None:
        if resource in self.plugins:
            self.plugins[resource].knobs.allocate_error = _FAILURE if is_failing else None

    async def admit(self, uid: str, step: Admit) -> Verdict:
        self.pods[uid] = step.containers
        return await self.maker.admit(uid, step.containers)

    async def end(self, uid: str) -> None:
        self.pods.pop(uid, None)
        await self.maker.end(uid)

    async def restart(self) -> dict[str, Verdict]:
        """Returns what became of the pods that were there. Init containers have ended, the others run on."""
        await self.stop()
        self._lists.clear()
        self._ends.clear()
        running = [
            (uid, container_name(index))
            for uid, containers in self.pods.items()
            for index, container in enumerate(containers)
            if container.kind != "init"
        ]
        await self.maker.start(self._machine, running)
        for plugin in self.plugins.values():
            await plugin.start(self.maker.plugin_dir)
            await self._announce(plugin)
        verdicts = {uid: await self.maker.admit(uid, containers) for uid, containers in self.pods.items()}
        await self.maker.all_pods_known()
        return verdicts

    async def seen(self, verdicts: Mapping[str, Verdict]) -> Seen:
        """How things stand, and what the plugins were asked since the last time."""
        allocated: dict[str, list[int]] = {}
        asked: dict[str, list[Asked]] = {}
        for resource, plugin in self.plugins.items():
            for call in plugin.calls_of("Allocate"):
                allocated.setdefault(resource, []).append(len(call.device_ids))
            for call in plugin.calls_of("GetPreferredAllocation"):
                request = call.request.container_requests[0]
                must = set(request.must_include_deviceIDs)
                others = tuple(sorted(set(request.available_deviceIDs) - must))
                asked.setdefault(resource, []).append(Asked(request.allocation_size, len(must), others))
            plugin.calls.clear()
        return Seen(await self.maker.held(), await self.maker.numbers(), verdicts, allocated, asked)

    async def _announce(self, plugin: FakePlugin) -> None:
        await plugin.register()
        await self._list_came(plugin.resource_name)

    async def _list_came(self, resource: str) -> None:
        self._lists[resource] += 1
        await self.maker.listed(resource, self._lists[resource])

    async def _part(self, plugin: FakePlugin) -> None:
        await plugin.stop()
        self._ends[plugin.resource_name] += 1
        await self.maker.ended(plugin.resource_name, self._ends[plugin.resource_name])


def _fakes(devices: tuple[Dev, ...]) -> dict[str, FakeDevice]:
    return {device.id: FakeDevice(device.healthy, device.numa) for device in devices}
