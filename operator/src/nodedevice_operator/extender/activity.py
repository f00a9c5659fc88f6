"""Whether this process answers kube-scheduler: it holds the Lease, and has read all that a leader before it may have bound.

A list that began before the Lease was ours may lack the last binds of the one before. So all bound pods and NodeDevices are listed
again then, consistently, and nothing is answered before these lists are stored.
"""

import asyncio
import logging
import math
from collections.abc import Sequence

from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.kube.write_fence import WriteFence

log = logging.getLogger(__name__)


class Activity:
    """`begin_term` is what an election calls when this process begins to lead."""

    def __init__(self, fence: WriteFence, informers: Sequence[Informer]) -> None:
        self._fence = fence
        self._informers = informers
        # terms in which another process may have bound pods before: the present one, and the last that all was read for
        self._term = 0
        self._read_term = -math.inf
        self._begins = asyncio.Event()

    def begin_term(self, another_wrote: bool, _nobody_since: float = 0.0) -> None:
        """This process leads; again, if nobody else has written since it last did."""
        if another_wrote:
            self._term += 1
            self._begins.set()

    def problem(self) -> str:
        """Why it does not answer; empty where it does."""
        if not self._fence.is_open:
            return "this extender stands by: another one holds the Lease, or nobody does"
        if self._read_term != self._term:
            return "this extender has just begun to lead, and reads which pods are bound"
        return ""

    async def work(self) -> None:
        """Read everything whenever a term begins, for ever."""
        while True:
            await self._begins.wait()
            self._begins.clear()
            term = self._term
            await asyncio.gather(*(informer.refresh() for informer in self._informers))
            self._read_term = term
            log.info("active", extra={"term": term})
