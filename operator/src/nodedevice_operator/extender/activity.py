"""Decides whether this process serves kube-scheduler: it must hold the Lease, and have read all binds of the leader before it.

A list that began before this process held the Lease may lack the last binds of the earlier leader. So it lists all bound pods and
NodeDevices again, consistently, and serves requests only after these lists are stored.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.kube.write_fence import WriteFence

log = logging.getLogger(__name__)


class Activity:
    """The election calls `begin_term` when this process begins to lead."""

    def __init__(self, fence: WriteFence, informers: Sequence[Informer]) -> None:
        self._fence = fence
        self._informers = informers
        # terms in which another process may have bound pods before: the present one, and the last that all was read for
        self._term = 0
        self._read_term = -math.inf
        self._begins = asyncio.Event()

    def begin_term(self, another_wrote: bool, _nobody_since: float = 0.0) -> None:
        """Notes that this process leads. another_wrote: False if no other process has written since it last led."""
        if another_wrote:
            self._term += 1
            self._begins.set()

    def problem(self) -> str:
        """Why it does not serve requests; empty if it does."""
        if not self._fence.is_open:
            return "this extender stands by: it does not hold the Lease"
        if self._read_term != self._term:
            return "this extender has just begun to lead, and is still listing the bound pods"
        return ""

    async def work(self) -> None:
        while True:
            await self._begins.wait()
            self._begins.clear()
            term = self._term
            await asyncio.gather(*(informer.refresh() for informer in self._informers))
            self._read_term = term
            log.info("active", extra={"term": term})
