"""Creates and deletes pods on nodes with modelled agents, and records the outcome."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec
from nodedevice_api import names
from nodedevice_operator.objects.bound_pod import BoundPodSchema

from hack.bench.operator.api import Api
from hack.scheduling.node_model import CONTAINER, GPUS, RESOURCE, UNITS, BoundPod, NodeModel

NAMESPACE: Final = "default"
_PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
_DEVICES: Final = f"/apis/{names.API_VERSION}/{names.NODE_DEVICES}"
# units of existing pods, as a share of the nodes' units
_FILL: Final = 1.0
# an agent's delay from a pod's change to its status
_AGENT_SECONDS: Final = 0.1
_QUIET_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Outcome:
    """pods: number bound. chosen: pods of these with an assignment. fill: share of all units that pods held, on average
    at a bind. waits: pods on nodes whose GPUs had no room. twice: binds that assigned more units of a GPU than it
    has, to pods whose agent follows. refused: assignments that an agent could not follow. units: held by pods at the end.
    """

    pods: int
    chosen: int
    fill: float
    waits: int
    twice: int
    refused: int
    units: int
    seconds: float


class _Event(msgspec.Struct):
    type: str
    object: BoundPodSchema


class Load:
    """Agents of these nodes, and pods for the scheduler of that name, inside `async with`.

    rival: name of another scheduler of these nodes, which gets every second pod.
    """

    def __init__(self, api: Api, nodes: Sequence[str], scheduler: str, seed: int, rival: str = "") -> None:
        self._api = api
        self._schedulers = scheduler, rival or scheduler
        self._random = random.Random(seed)
        self._models = {node: NodeModel(node) for node in nodes}
        self._queues: dict[str, asyncio.Queue[BoundPod | str]] = {node: asyncio.Queue() for node in nodes}
        self._tasks = AsyncExitStack()
        self._run = f"{scheduler}-{seed}"
        self._began = time.monotonic()
        # units of each pod without a sent delete; the node of each bound pod
        self._units: dict[str, int] = {}
        self._on: dict[str, tuple[str, BoundPod]] = {}
        self._bound = self._chosen = self._twice = self._made = self._filled = 0
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        for work in (self._watch(), *(self._agent(node) for node in self._models)):
            task = asyncio.create_task(work)
            task.add_done_callback(lambda done: None if done.cancelled() else done.result())
            self._tasks.callback(task.cancel)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._tasks.aclose()

    @property
    def bound(self) -> int:
        """Number of bound pods so far."""
        return self._bound

    async def come_and_go(self, count: int) -> Outcome:
        """Create pods of 1 to 80 units. The nodes are full: for each pod without room, a random bound one ends."""
        room = _FILL * len(self._models) * GPUS * UNITS
        for _ in range(count):
            units = self._random.randint(1, UNITS)
            while sum(self._units.values()) + units > room:
                await self._end_one()
            await self._create(units)
        while self._units:
            await self._end_one()
        return self._outcome()

    async def stay(self, sizes: Sequence[int]) -> Outcome:
        """Create pods that do not end, until none has been bound for a while. Then delete them."""
        for size in sizes:
            await self._create(size)
        before = -1
        while before != self._bound:
            before = self._bound
            await asyncio.sleep(_QUIET_SECONDS)
        found = self._outcome()
        await asyncio.gather(*(self._api.delete(f"{_PODS}/{name}") for name in self._units))
        return found

    def _outcome(self) -> Outcome:
        models = self._models.values()
        waits, refused = sum(model.waits for model in models), sum(model.refused for model in models)
        seconds = time.monotonic() - self._began
        fill = self._filled / max(1, self._bound) / (len(models) * GPUS * UNITS)
        return Outcome(
            self._bound, self._chosen, fill, waits, self._twice, refused, sum(model.units for model in models), seconds
        )

    # -- pods -----------------------------------------------------------------------------------------------------------

    async def _create(self, units: int) -> None:
        name = f"{self._run}-{self._made}"
        scheduler = self._schedulers[self._made % 2]
        self._made += 1
        self._units[name] = units
        resources = {"limits": {RESOURCE: str(units)}}
        container = {"name": CONTAINER, "image": "none", "resources": resources}
        spec = {"schedulerName": scheduler, "containers": [container], "terminationGracePeriodSeconds": 0}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        await self._api.post(_PODS, body, "load")

    async def _end_one(self) -> None:
        """End a random bound pod, as soon as one exists."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._on.keys() & self._units.keys())
        name = self._random.choice(sorted(self._on.keys() & self._units.keys()))
        del self._units[name]
        await self._api.delete(f"{_PODS}/{name}")

    async def _watch(self) -> None:
        """Events of these pods from the API, in its order."""
        async for event in self._api.watch(_PODS, _Event, {}):
            name, pod = event.object.metadata.name, event.object
            if not name.startswith(f"{self._run}-"):
                continue
            if event.type == "DELETED":
                self._gone(name)
            elif pod.spec.node_name and name not in self._on:
                await self._show(pod)

    async def _show(self, pod: BoundPodSchema) -> None:
        meta, node = pod.metadata, pod.spec.node_name
        annotation = (meta.annotations or {}).get(names.ASSIGNED_PARTS_ANNOTATION)
        bound = BoundPod(meta.namespace, meta.name, meta.uid, self._units[meta.name], annotation)
        self._on[meta.name] = node, bound
        self._bound += 1
        self._filled += sum(model.units for model in self._models.values())
        if (gpu := bound.gpu()) is not None:
            self._chosen += 1
            self._twice += self._assigned_units(node, gpu) > UNITS
        self._queues[node].put_nowait(bound)
        async with self._changed:
            self._changed.notify_all()

    def _assigned_units(self, node: str, gpu: str) -> int:
        """Units of a GPU that existing pods are assigned, without assignments that the agent could not follow."""
        model = self._models[node]
        pods = (pod for place, pod in self._on.values() if place == node and pod.uid not in model.unfollowed)
        return sum(pod.units for pod in pods if pod.gpu() == gpu)

    def _gone(self, name: str) -> None:
        node, pod = self._on.pop(name, ("", None))
        if pod is not None:
            self._queues[node].put_nowait(pod.uid)

    # -- agents ---------------------------------------------------------------------------------------------------------

    async def _agent(self, node: str) -> None:
        """Follows its pods, and publishes its status after a short delay."""
        model, queue = self._models[node], self._queues[node]
        await self._publish(model)
        while True:
            changes = [await queue.get()]
            await asyncio.sleep(self._random.uniform(0, _AGENT_SECONDS))
            while not queue.empty():
                changes.append(queue.get_nowait())
            for change in changes:
                if isinstance(change, BoundPod):
                    model.bound(change)
                else:
                    model.released(change)
            await self._publish(model)

    async def _publish(self, model: NodeModel) -> None:
        body: dict[str, Any] = model.status()
        path = f"{_DEVICES}/{body['metadata']['name']}/status"
        await self._api.apply(path, body, names.AGENT_FIELD_MANAGER)
