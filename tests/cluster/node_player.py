"""Plays the kubelets of the demo's nodes: they are Ready, bound pods run, and deleted ones end and are removed.

In the place of KWOK, which would first have to be built. What a kubelet writes is in kubelet_writes; nothing else is written, and
about no other node: neither capacity nor anything of the product's.

A process of its own (`python -m tests.cluster.node_player KUBECONFIG PLAYED_BY`): two threads that decode objects of one kind for the
first time crash the interpreter (msgspec 0.22), and the demo has threads that do.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self, cast

from tests.cluster.api import NO_ANSWER, ApiError, AsyncClient, Lease, Node, Object, PatchType, Pod, open_client
from tests.cluster.cluster import Cluster
from tests.cluster.kubelet_writes import next_write, node_lease, ready_node
from tests.cluster.nodes import PLAYED_LABEL
from tests.cluster.processes.processes import Process, tail

_FIELD_MANAGER: Final = "kubelet"
_LEASES: Final = "kube-node-lease"
_RENEW_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
# somebody else was quicker, and what they made of the object is an event of its own
_OUTRUN: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


class NodePlayer:
    """Plays a cluster's Nodes while it is entered. log: what could not be read or written, and why; empty while all is well."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        command = [sys.executable, "-m", "tests.cluster.node_player", str(cluster.admin_kubeconfig), cluster.played_by]
        self._process = Process("the player of the nodes", command, log)

    @property
    def trouble(self) -> str:
        """The end of its log."""
        return tail(self._process.log)

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()


class _Kubelets:
    """Those of all Nodes with a label."""

    def __init__(self, kubeconfig: Path, played_by: str) -> None:
        self._kubeconfig = kubeconfig
        self._labels: dict[str, Any] = {PLAYED_LABEL: played_by}
        self._logged = ""

    async def play(self) -> None:
        client = AsyncClient(open_client(self._kubeconfig))
        kubelets: dict[str, asyncio.Task[None]] = {}
        try:
            async with asyncio.TaskGroup() as tasks:

                async def see(kind: str, node: Object) -> None:
                    name = _name(node)
                    if kind == "DELETED":
                        kubelets.pop(name).cancel()
                        return
                    if name not in kubelets:
                        kubelets[name] = tasks.create_task(self._play_kubelet(client, node))
                    if patch := ready_node(node, datetime.now(UTC)):
                        await self._write(client.patch(Node.Status, name, patch, field_manager=_FIELD_MANAGER))

                await self._follow(lambda: client.watch(Node, labels=self._labels), see)
        finally:
            await client.close()

    async def _play_kubelet(self, client: AsyncClient, node: Object) -> None:
        """Writes the status of one node and of its pods, again and again."""

        async def see(kind: str, pod: Object) -> None:
            step = next_write(pod, datetime.now(UTC)) if kind != "DELETED" else None
            if step is None:
                return
            name, namespace = _name(pod), pod.metadata.namespace
            if step.patch is None:
                await self._write(client.delete(Pod, name, namespace=namespace, grace_period=0))
                return
            change = client.patch(Pod.Status, name, step.patch, namespace=namespace, field_manager=_FIELD_MANAGER)
            await self._write(change)

        fields: dict[str, Any] = {"spec.nodeName": _name(node)}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._renew_lease(client, node))
            await self._follow(lambda: client.watch(Pod, namespace="*", fields=fields), see)

    async def _renew_lease(self, client: AsyncClient, node: Object) -> None:
        while True:
            change = client.patch(
                Lease,
                _name(node),
                node_lease(node, datetime.now(UTC)),
                namespace=_LEASES,
                patch_type=PatchType.APPLY,
                field_manager=_FIELD_MANAGER,
                force=True,
            )
            await self._write(change)
            await asyncio.sleep(_RENEW_SECONDS)

    async def _follow(self, watch: Callable[[], Any], see: Callable[[str, Any], Awaitable[None]]) -> None:
        """Each event of a watch, which begins with every object that exists; opened again whenever it ends."""
        while True:
            try:
                async with aclosing(cast("AsyncGenerator[Any]", watch())) as events:
                    async for kind, found in events:
                        await see(kind, found)
            except (ApiError, *NO_ANSWER) as exc:
                self._log(f"a played node cannot be watched, or its pods: {exc}")
            await asyncio.sleep(_RETRY_SECONDS)

    async def _write(self, request: Awaitable[Any]) -> None:
        try:
            await request
        except (ApiError, *NO_ANSWER) as exc:
            if not (isinstance(exc, ApiError) and exc.status.code in _OUTRUN):
                self._log(f"a played node cannot be written, or its pods: {exc}")

    def _log(self, problem: str) -> None:
        """Once: it is tried again and again."""
        if problem != self._logged:
            print(problem, flush=True)
        self._logged = problem


def _name(found: Object | Object) -> str:
    return str(found.metadata.name)


if __name__ == "__main__":
    asyncio.run(_Kubelets(Path(sys.argv[1]), sys.argv[2]).play())
