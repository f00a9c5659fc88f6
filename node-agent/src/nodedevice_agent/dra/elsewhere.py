"""Decides whether a pool known only from pods belongs to this node: drivers also offer devices that several nodes reach.

Slices of such devices name no node, and never get a NodeDevice. One request per driver finds them, because older API servers
cannot select by pool.
"""

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from nodedevice_kube.api_errors import ApiError, Unauthorized

from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.dra.slices import ResourceSliceObject
from nodedevice_agent.kube.client import KubeClient
from nodedevice_agent.kube.retries import until_done


class Elsewhere:
    """run() until cancelled. on_known: called with each pool once its place is known."""

    def __init__(self, cluster: KubeClient) -> None:
        self.on_known: Callable[[PoolKey], None] = lambda key: None
        self._cluster = cluster
        # None: not known yet
        self._found: dict[PoolKey, bool | None] = {}
        self._is_changed = asyncio.Event()

    def ask(self, keys: Collection[PoolKey]) -> None:
        """Set all pools known only from pods; others are forgotten."""
        if self._found.keys() != {*keys}:
            self._found = {key: self._found.get(key) for key in keys}
            self._is_changed.set()

    def is_beyond(self, key: PoolKey) -> bool | None:
        """Whether the pool does not belong to this node; None until known."""
        return self._found.get(key)

    async def run(self) -> None:
        while True:
            # first the rest of an earlier run
            self._is_changed.clear()
            for driver in sorted({key[0] for key in self._unknown()}):
                found = await until_done(partial(self._answer, driver))
                for key in self._unknown():
                    # the callback may forget other pools
                    if key[0] == driver and key in self._found:
                        self._found[key] = found
                        self.on_known(key)
            await self._is_changed.wait()

    def _unknown(self) -> list[PoolKey]:
        return [key for key, found in self._found.items() if found is None]

    async def _answer(self, driver: str) -> bool:
        """Whether the driver has slices that are not of one node. Raises ApiError if a retry may succeed."""
        try:
            return await self._cluster.exists(ResourceSliceObject, {"spec.nodeName": "", "spec.driver": driver})
        except ApiError as exc:
            if exc.is_temporary or isinstance(exc, Unauthorized):
                raise
            # without other evidence the pool belongs to this node
            return False
