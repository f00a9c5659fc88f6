"""Pods that come and go on one node all the time: one to three containers, init containers, sidecars, every kind of end."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

from tests.cluster.api import ApiError, AsyncClient, Object, Pod
from tests.robustness.crash.invariants import Holder
from tests.robustness.crash.node import RESOURCES

_MOST_PODS = 6
_PAUSE_SECONDS = (0.02, 0.25)
_NOT_FOUND = 404


class PodChurn:
    """run() until stop(), or step by step. Pods are created with their node name: there is no scheduler here.

    spec: of a new pod, for its node. most: how many pods there are at once.
    """

    def __init__(
        self,
        client: AsyncClient,
        namespace: str,
        node_name: str,
        chance: random.Random,
        spec: Callable[[str, random.Random], Object] | None = None,
        most: int = _MOST_PODS,
    ) -> None:
        self._spec, self._most = spec or pod_spec, most
        self._client = client
        self._namespace = namespace
        self._node_name = node_name
        self._chance = chance
        self._numbers = itertools.count()
        self._names: list[str] = []
        self._is_stopping = False
        self.created = 0

    async def run(self) -> None:
        while not self._is_stopping:
            await asyncio.sleep(self._chance.uniform(*_PAUSE_SECONDS))
            await self.step()

    async def step(self) -> None:
        """A pod comes or goes."""
        if self._chance.random() < 1 - len(self._names) / self._most:
            await self._make()
        elif self._chance.random() < 0.3:
            await self._finish(self._chance.choice(self._names))
        else:
            await self._delete(self._names.pop(self._chance.randrange(len(self._names))))

    def stop(self) -> None:
        """Let run() finish its current step, so that it knows every pod."""
        self._is_stopping = True

    async def keep(self, count: int) -> None:
        """Delete all pods but `count`."""
        while len(self._names) > count:
            await self._delete(self._names.pop())

    async def alive(self) -> dict[str, Any]:
        """The pods of this node that exist and have not ended, by UID."""
        pods = self._client.list(Pod, namespace=self._namespace, fields={"spec.nodeName": self._node_name})
        return {str(pod.metadata.uid): pod async for pod in pods if not has_ended(pod)}

    async def _make(self) -> None:
        name = f"{self._node_name}-{next(self._numbers)}"
        metadata = Object(name=name, namespace=self._namespace)
        await self._client.create(Pod(metadata=metadata, spec=self._spec(self._node_name, self._chance)))
        self._names.append(name)
        self.created += 1

    async def _finish(self, name: str) -> None:
        """End its containers; the pod stays in the API until it is deleted."""
        phase = self._chance.choice(["Succeeded", "Failed"])
        with _ignore_not_found():
            found: Any = await self._client.get(Pod, name, namespace=self._namespace)
            if found.status.phase != "Running":
                # the player of the nodes may be about to set it to Running, and would revive it, which no kubelet does
                return
            await self._client.patch(
                Pod.Status, name, Pod.Status(status=Object(phase=phase)), namespace=self._namespace
            )

    async def _delete(self, name: str) -> None:
        grace = self._chance.choice([0, 5])
        with _ignore_not_found():
            await self._client.delete(Pod, name, namespace=self._namespace, grace_period=grace)


def has_ended(pod: Any) -> bool:
    return bool(pod.status and pod.status.phase in ("Succeeded", "Failed"))


def needs(pod: Any) -> Iterator[tuple[Holder, int]]:
    """The number of devices that each container of a pod requests."""
    for container in (*(pod.spec.initContainers or ()), *pod.spec.containers):
        limits = (container.resources.limits or {}) if container.resources else {}
        for resource in RESOURCES:
            if int(limits.get(resource, 0)):
                yield Holder(resource, pod.metadata.uid, container.name), int(limits[resource])


def pod_spec(node_name: str, chance: random.Random) -> Object:
    """At most 4 devices of a resource at a time."""
    starters = [_container(f"init-{n}", chance, chance.random() < 0.3) for n in range(chance.choice([0, 0, 1, 2]))]
    containers = [_container(f"main-{n}", chance) for n in range(chance.randint(1, 3))]
    return Object(nodeName=node_name, containers=containers, initContainers=starters, terminationGracePeriodSeconds=5)


def _container(name: str, chance: random.Random, is_sidecar: bool = False) -> Object:
    limits = {resource: "1" for resource in RESOURCES if chance.random() < 0.6}
    return Object(
        name=name,
        image="none",
        resources=Object(limits=limits),
        restartPolicy="Always" if is_sidecar else None,
    )


@contextlib.contextmanager
def _ignore_not_found() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.status.code != _NOT_FOUND:
            raise
