"""Whether a pool is of this node, where only pods tell of it: drivers also offer devices that several nodes reach.

Slices of those name no node. So no watch of a node's slices shows them, and no NodeDevice: not either where a pod of this node has
such a device. Each pool is asked about once, by its driver, as older API servers cannot select by pools.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial

from nodedevice_kube.api_errors import ApiError, Unauthorized

from nodedevice_agent.dra.devices import PoolKey
from nodedevice_agent.kube.retries import until_done

# whether that driver has slices that are not of one node; raises ApiError
Has = Callable[[str], Awaitable[bool]]


class Elsewhere:
    """run() until cancelled. on_known: called with each pool of which it has become known."""

    def __init__(self, has: Has) -> None:
        self.on_known: Callable[[PoolKey], None] = lambda key: None
        self._has = has
        # None: not known yet
        self._found: dict[PoolKey, bool | None] = {}
        self._is_changed = asyncio.Event()

    def ask(self, keys: Collection[PoolKey]) -> None:
        """All pools that only pods tell of; others are forgotten."""
        if self._found.keys() != {*keys}:
            self._found = {key: self._found.get(key) for key in keys}
            self._is_changed.set()

    def is_beyond(self, key: PoolKey) -> bool | None:
        """Whether it is a pool that is not of this node; None until that is known."""
        return self._found.get(key)

    async def run(self) -> None:
        while True:
            # those first that are left of another run
            self._is_changed.clear()
            for driver in sorted({key[0] for key in self._unknown()}):
                found = await until_done(partial(self._answer, driver))
                for key in self._unknown():
                    # who hears of one may forget another
                    if key[0] == driver and key in self._found:
                        self._found[key] = found
                        self.on_known(key)
            await self._is_changed.wait()

    def _unknown(self) -> list[PoolKey]:
        return [key for key, found in self._found.items() if found is None]

    async def _answer(self, driver: str) -> bool:
        """Raises ApiError for what may be otherwise soon."""
        try:
            return await self._has(driver)
        except ApiError as exc:
            if exc.is_temporary or isinstance(exc, Unauthorized):
                raise
            # as far as anybody says it is of this node
            return False
