"""Plays kubelets for Nodes that have none: they are Ready, bound pods run, Jobs complete, and deleted pods end and are removed.

What a kubelet writes is in kubelet_writes; nothing else is written, and about no other node: neither capacity nor anything of
the product's. A process of its own: python -m tests.cluster.node_player KUBECONFIG PLAYED_BY
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, cast

from tests.cluster.api import NO_ANSWER, ApiError, AsyncClient, Lease, Node, Object, PatchType, Pod, open_client
from tests.cluster.kubelet_writes import next_write, node_lease, ready_node
from tests.cluster.nodes import PLAYED_LABEL
from tests.cluster.processes.processes import Process

_FIELD_MANAGER: Final = "kubelet"
_LEASES: Final = "kube-node-lease"
_RENEW_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
# somebody else was quicker, and what they made of the object is an event of its own
_OUTRUN: Final = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)


def player(kubeconfig: Path, played_by: str, log: Path) -> Process:
    """Plays the Nodes of that label, once started. Its log has what could not be read or written, and why."""
    command = [sys.executable, "-m", "tests.cluster.node_player", str(kubeconfig), played_by]
    return Process("node-player", command, log)


class _Kubelets:
    """Those of all Nodes with a label."""

    def __init__(self, client: AsyncClient, played_by: str) -> None:
        self._client = client
        self._labels: dict[str, Any] = {PLAYED_LABEL: played_by}
        self._leases: dict[str, asyncio.Task[None]] = {}
        self._logged = ""

    async def play(self) -> None:
        bound: dict[str, Any] = {"spec.nodeName!": ""}
        async with asyncio.TaskGroup() as tasks:

            async def see_node(kind: str, node: Object) -> None:
                name = _name(node)
                if kind == "DELETED":
                    if name in self._leases:
                        self._leases.pop(name).cancel()
                    return
                if patch := ready_node(node, datetime.now(UTC)):
                    await self._write(self._client.patch(Node.Status, name, patch, field_manager=_FIELD_MANAGER))
                if name not in self._leases:
                    self._leases[name] = tasks.create_task(self._renew_lease(node))
                    # pods that were bound to it before
                    of_node: dict[str, Any] = {"spec.nodeName": name}
                    async for pod in self._client.list(Pod, namespace="*", fields=of_node):
                        await self._see_pod("ADDED", pod)

            tasks.create_task(self._follow(lambda: self._client.watch(Node, labels=self._labels), see_node))
            watch_pods = partial(self._client.watch, Pod, namespace="*", fields=bound)
            tasks.create_task(self._follow(watch_pods, self._see_pod))

    async def _see_pod(self, kind: str, pod: Object) -> None:
        step = next_write(pod, datetime.now(UTC)) if kind != "DELETED" and pod.spec.nodeName in self._leases else None
        if step is None:
            return
        name, namespace = _name(pod), pod.metadata.namespace
        if step.patch is None:
            await self._write(self._client.delete(Pod, name, namespace=namespace, grace_period=0))
            return
        await self._write(
            self._client.patch(Pod.Status, name, step.patch, namespace=namespace, field_manager=_FIELD_MANAGER)
        )

    async def _renew_lease(self, node: Object) -> None:
        while True:
            change = self._client.patch(
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


def _name(found: Object) -> str:
    return str(found.metadata.name)


async def _main(kubeconfig: Path, played_by: str) -> None:
    client = AsyncClient(open_client(kubeconfig))
    try:
        await _Kubelets(client, played_by).play()
    finally:
        await client.close()


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
