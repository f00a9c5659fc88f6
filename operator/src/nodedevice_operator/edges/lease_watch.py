"""Looks at the agents' Leases from time to time, and asks for a look at each node whose agent came or went.

A whole listing each time, from the API server's watch cache: a watch would bring every renewal of every agent.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from nodedevice_operator.core.leases import MISSING, AgentState, LeaseBook
from nodedevice_operator.edges.cluster import Cluster
from nodedevice_operator.errors import ApiError

log = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 10.0
# The agent of a new node makes its Lease about when it makes its NodeDevices: so long the looks are closer together.
_CLOSE_INTERVAL_SECONDS: Final = 1.0
_CLOSE_LOOKS: Final = 20


class LeaseWatch:
    """The book of Leases, and the task that keeps it."""

    def __init__(self, cluster: Cluster, touch: Callable[[str], None], nodes: Callable[[], frozenset[str]]) -> None:
        self._cluster = cluster
        self._touch = touch
        self._nodes = nodes
        self._book = LeaseBook()
        self._missing: dict[str, int] = {}
        self._sooner = asyncio.Event()
        self.has_looked = False

    def state(self, node: str) -> AgentState:
        """State of that node's agent; asks for a look soon when it has no Lease that we know of."""
        state = self._book.state(node)
        if state is MISSING and node not in self._missing:
            self._missing[node] = 0
            self._sooner.set()
        return state

    async def work(self) -> None:
        """Look, wait, and so on, for ever."""
        while True:
            await self._look()
            close = any(looks < _CLOSE_LOOKS for looks in self._missing.values())
            await self._pause(_CLOSE_INTERVAL_SECONDS if close else _INTERVAL_SECONDS)

    async def _look(self) -> None:
        try:
            found = await self._cluster.list_leases()
        except ApiError as error:
            log.debug("Leases not listed", extra={"problem": str(error)})
            changed: frozenset[str] = frozenset()
        else:
            before, self._book = self._book, self._book.look(found, time.monotonic())
            changed = self._book.changes_since(before)
        is_first, self.has_looked = not self.has_looked, True
        nodes = self._nodes()
        for node in nodes if is_first else changed & nodes:
            self._touch(node)
        self._count_missing(nodes)

    def _count_missing(self, nodes: frozenset[str]) -> None:
        self._missing = {
            node: looks + 1
            for node, looks in self._missing.items()
            if node in nodes and self._book.state(node) is MISSING
        }

    async def _pause(self, seconds: float) -> None:
        """Wait; cut short when a node without a Lease turns up, but never below the close interval."""
        try:
            async with asyncio.timeout(seconds):
                await self._sooner.wait()
        except TimeoutError:
            return
        self._sooner.clear()
        await asyncio.sleep(_CLOSE_INTERVAL_SECONDS / 4)
