"""Takes part in the election only while the kube-scheduler of the same pod leads: only its extender is asked.

Source: client-go leaderelection in kube-scheduler's app/server.go: the holder is the host name, an underscore and a uuid.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from nodedevice_kube.api_errors import ApiError

from nodedevice_operator.leases.elector import Election, LeaderLeases

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 1.0


class LeaseFollower:
    """Reads that Lease each second. host_name: ours, and so that of our kube-scheduler. until_quiet: as Election.end has it."""

    def __init__(
        self, leases: LeaderLeases, election: Election, host_name: str, until_quiet: Callable[[], Awaitable[bool]]
    ) -> None:
        self._leases = leases
        self._election = election
        self._prefix = f"{host_name}_"
        self._until_quiet = until_quiet
        self._holder: str | None = None

    async def work(self) -> None:
        while True:
            await self.round()
            await asyncio.sleep(_POLL_SECONDS)

    async def round(self) -> None:
        """Reads the Lease once. A failed read changes nothing: the process cannot renew its own Lease then, either."""
        try:
            holder = (await self._leases.read()).holder
        except ApiError as error:
            log.debug("kube-scheduler's Lease cannot be read; retrying", extra={"error": str(error)})
            return
        if holder == self._holder:
            return
        self._holder = holder
        if holder.startswith(self._prefix):
            log.info("kube-scheduler of this pod leads; taking part in the election", extra={"leader": holder})
            self._election.take_part()
        else:
            log.info("kube-scheduler of this pod does not lead; standing aside", extra={"leader": holder})
            await self._election.stand_aside(self._until_quiet)
