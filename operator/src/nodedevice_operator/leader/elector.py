"""Keeps the Lease that core.election plans for, and the fence open for as long as that allows.

One round after the other: look where another leads, renew where we do. A round that fails changes nothing but that the
deadline comes nearer. Losing the Lease ends no process: caches stay warm, and only writes wait.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from typing import Final

from nodedevice_operator.errors import ApiError, Conflict, Invalid, NotFound
from nodedevice_operator.kube.write_fence import WriteFence, boot_seconds
from nodedevice_operator.leader.election import Candidate, Timing
from nodedevice_operator.leader.lease import LeaderLeases, now_text

log = logging.getLogger(__name__)

# Another was quicker: who it was is to be known now, but nobody asks in a tight loop.
_LOST_RACE_SECONDS: Final = 0.05


def identity() -> str:
    """A name for this very process: a pod that starts anew is another candidate."""
    return f"{socket.gethostname()}_{os.getpid()}_{secrets.token_hex(4)}"


class Election:
    """One candidate at work.

    `on_lead` is called whenever writing begins, with whether another may have written before, and since when probably nobody has
    (by the clock).
    """

    def __init__(
        self,
        leases: LeaderLeases,
        fence: WriteFence,
        timing: Timing,
        name: str,
        on_lead: Callable[[bool, float], None],
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        self._leases = leases
        self._fence = fence
        self._timing = timing
        self._candidate = Candidate(name, timing)
        self._on_lead = on_lead
        self._clock = clock
        self._is_current = False
        self._told: str | None = None
        self._led = False
        self._deadline = 0.0
        self._has_ended = False
        self._round_runs = asyncio.Lock()

    async def work(self) -> None:
        """Take part until cancelled, or until `end`."""
        while not self._has_ended:
            async with self._round_runs:
                pause = await self._round()
            await asyncio.sleep(pause)

    async def end(self, until_quiet: Callable[[], Awaitable[bool]]) -> None:
        """Write no more, and clear the holder once nothing is on its way any more; if not soon, the Lease runs out by itself.

        until_quiet: waits for writes that are still out, and says whether there are none.
        """
        self._has_ended = True
        self._fence.close()
        is_quiet = await until_quiet()
        async with self._round_runs:
            self._fence.close()
            if not is_quiet or not self._candidate.holds:
                return
            try:
                await self._leases.write(self._candidate.release(now_text()))
            except ApiError as error:
                log.debug("Lease not cleared", extra={"problem": str(error)})

    async def _round(self) -> float:
        """Look, and write where we may; in how many seconds the next round is due."""
        self._tell_if_over()
        # whose time is over does not even try what it knew then
        self._is_current = self._is_current and self._fence.is_open
        try:
            if not self._is_current:
                self._candidate = self._candidate.saw(await self._leases.read(), self._clock())
            wait = self._candidate.wait_seconds(self._clock())
            if wait > 0:
                self._stand_by()
                return min(wait, self._timing.look_seconds)
            return await self._claim()
        except (Conflict, Invalid, NotFound):
            self._is_current = False
            return _LOST_RACE_SECONDS
        except ApiError as error:
            # whether a write was done is not known: the next round looks
            self._is_current = False
            log.debug("Lease not kept", extra={"problem": str(error)})
            return self._timing.look_seconds

    async def _claim(self) -> float:
        sent_at = self._clock()
        before, goes_on = self._candidate, self._candidate.holds and self._led
        written = await self._leases.write(self._candidate.claim(now_text()))
        self._candidate = self._candidate.saw(written, self._clock())
        self._is_current = True
        if self._has_ended:
            return 0.0
        begins = not self._fence.is_open
        nobody_since = self._deadline if goes_on else before.last_sign_of_life
        self._deadline = sent_at + self._timing.deadline_seconds
        self._fence.open_until(self._deadline)
        self._told = None
        if begins:
            log.info("leading", extra={"identity": self._candidate.identity, "transitions": written.transitions})
            self._on_lead(not goes_on, nobody_since)
        self._led = True
        return max(0.0, sent_at + self._timing.renew_seconds - self._clock())

    def _stand_by(self) -> None:
        """Another holds the Lease."""
        self._fence.close()
        self._led = self._is_current = False
        assert self._candidate.seen is not None
        holder = self._candidate.seen.holder
        if holder != self._told:
            log.info("standing by", extra={"leader": holder})
            self._told = holder

    def _tell_if_over(self) -> None:
        if self._led and not self._fence.is_open and self._told is None:
            log.warning("the Lease was not renewed in time; writes wait until it is")
            self._told = ""
