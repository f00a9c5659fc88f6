"""Takes part in the election: acquires and renews the Lease, and keeps the write fence open while the Lease is held.

Works in rounds: a standby reads the Lease, the leader renews it. A round that fails changes nothing; only the deadline comes
nearer. Losing the Lease ends no process: caches stay warm, and only writes wait. A renewal without a response for a while is sent
once more, on another connection: both replace the same version, so at most one of them succeeds.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.text import clean
from nodedevice_kube.api_errors import ApiError, Conflict, Invalid, NotFound, Unreachable
from nodedevice_kube.leases import Lease, lease_of, spec_of
from nodedevice_kube.paths import LEASES

from nodedevice_operator.kube.client import Client, now_text
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.write_fence import WriteFence, boot_seconds
from nodedevice_operator.leases.leader_election import Candidate, Pace, Timing
from nodedevice_operator.objects.instance import labelled

log = logging.getLogger(__name__)

_WHAT: Final = "leases"
# no two renewals are equal
_FINE: Final = "microseconds"

# side by side: both tries of a renewal
LEASE_REQUESTS: Final = 2

# Another candidate was quicker: read at once who it is, but not in a tight loop.
_LOST_RACE_SECONDS: Final = 0.05


def identity() -> str:
    """A name for this process: a pod that restarts is another candidate."""
    # a Lease must be UTF-8; a machine's name may contain other bytes
    return f"{clean(socket.gethostname())}_{os.getpid()}_{secrets.token_hex(4)}"


class LeaderLeases:
    """Its client has no fence, which it opens. The Lease is created by PUT: a role can allow that for this one name."""

    def __init__(self, client: Client, namespace: str, name: str = names.OPERATOR_LEASE, instance: str = "") -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._instance = instance
        self.path = LEASES.path(name, namespace)

    async def read(self, seconds: float | None = None) -> Lease:
        """Reads the Lease; without a version if it does not exist. seconds: the request's timeout. Raises ApiError."""
        try:
            data = await self._client.request("GET", _WHAT, self.path, seconds=seconds)
        except NotFound:
            return Lease()
        return _from_wire("GET", data)

    async def write(self, lease: Lease, seconds: float | None = None) -> Lease:
        """Replaces that version, or creates it; returns the stored Lease. Raises Conflict, Invalid or NotFound if changed."""
        data = await self._client.request("PUT", _WHAT, self.path, body=self._to_wire(lease), seconds=seconds)
        return _from_wire("PUT", data)

    def _to_wire(self, lease: Lease) -> dict[str, Any]:
        metadata = {"name": self._name, "namespace": self._namespace, **labelled(self._instance)}
        if lease.version:
            metadata["resourceVersion"] = lease.version
        spec = {**spec_of(lease), "holderIdentity": lease.holder or None}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}


def _from_wire(verb: str, data: bytes) -> Lease:
    return lease_of(decode(verb, _WHAT, data, dict[str, Any]))


@dataclass(eq=False)
class Election:
    """on_lead: called when this process begins to write: whether another may have written, and since when none has."""

    leases: LeaderLeases
    fence: WriteFence
    timing: Timing
    name: str
    on_lead: Callable[[bool, float], None]
    clock: Callable[[], float] = boot_seconds
    is_candidate: bool = True
    _logged: str | None = field(default=None, init=False)
    _led: bool = field(default=False, init=False)
    _has_ended: bool = field(default=False, init=False)
    _may_lead: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _round_lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        self._candidate = Candidate(self.name, self.timing)
        self._pace = Pace(self.timing)
        if self.is_candidate:
            self._may_lead.set()

    async def work(self) -> None:
        while not self._has_ended:
            await self._may_lead.wait()
            async with self._round_lock:
                pause = await self._round() if self._may_lead.is_set() else 0.0
            await asyncio.sleep(pause)

    def take_part(self) -> None:
        self._may_lead.set()

    async def stand_aside(self, until_quiet: Callable[[], Awaitable[bool]]) -> None:
        """Pauses until `take_part`, and releases the Lease as `end` does."""
        self._may_lead.clear()
        await self._release(until_quiet)

    async def end(self, until_quiet: Callable[[], Awaitable[bool]]) -> None:
        """Stops writing, and releases the Lease if `until_quiet` reports that no write is pending; else it expires by itself."""
        self._has_ended = True
        await self._release(until_quiet)

    async def _release(self, until_quiet: Callable[[], Awaitable[bool]]) -> None:
        self._become(self._candidate.stopped())
        is_quiet = await until_quiet()
        async with self._round_lock:
            # the next round, if there is one, reads first
            self._become(self._candidate.stopped())
            if not is_quiet or not self._candidate.holds:
                return
            self._led = False
            try:
                await self.leases.write(self._candidate.release(now_text(_FINE)))
            except ApiError as error:
                log.debug("could not release the Lease", extra={"error": str(error)})

    async def _round(self) -> float:
        """Read the Lease, and write it if allowed; in how many seconds the next round is due."""
        self._log_if_over()
        try:
            if self._candidate.must_read(self.clock()):
                read = await self._timed(self.leases.read)
                self._become(self._candidate.saw(read, self.clock()))
            wait = self._candidate.wait_seconds(self.clock())
            if wait > 0:
                self._stand_by()
                return min(wait, self.timing.retry_seconds)
            return await self._claim()
        except (Conflict, Invalid, NotFound):
            self._become(self._candidate.unsure())
            return _LOST_RACE_SECONDS
        except ApiError as error:
            self._become(self._candidate.unsure())
            log.debug("Lease update failed; retrying", extra={"error": str(error)})
            return self.timing.retry_seconds

    async def _claim(self) -> float:
        timing = self._pace.timing
        # before it is sent: others may believe a shorter Lease from then on
        self._become(self._candidate.claiming(timing, self.clock()))
        before, goes_on = self._candidate, self._candidate.holds and self._led
        written, sent_at = await self._write(before.claim(now_text(_FINE)), timing)
        if self._has_ended or not self._may_lead.is_set():
            self._become(self._candidate.saw(written, self.clock()))
            return 0.0
        begins = not self.fence.is_open
        nobody_since = before.may_write_until if goes_on else before.last_sign_of_life
        self._become(self._candidate.claimed(written, sent_at, self.clock()))
        self._logged = None
        if begins:
            log.info("leading", extra={"identity": self._candidate.identity, "transitions": written.transitions})
            self.on_lead(not goes_on, nobody_since)
        self._led = True
        return max(0.0, sent_at + timing.renew_seconds - self.clock())

    def _become(self, candidate: Candidate) -> None:
        """The one place that moves the fence."""
        self._candidate = candidate
        self.fence.open_until(candidate.may_write_until)

    async def _write(self, lease: Lease, timing: Timing) -> tuple[Lease, float]:
        """Writes the Lease, once more without a response; returns it, and when the successful try was sent. Raises ApiError."""

        async def send() -> tuple[Lease, float]:
            sent_at = self.clock()
            return await self._timed(partial(self.leases.write, lease)), sent_at

        tries = {asyncio.create_task(send())}
        try:
            done, _ = await asyncio.wait(tries, timeout=timing.second_try_seconds)
            if not done:
                tries.add(asyncio.create_task(send()))
            return await _first_of(tries)
        finally:
            for each in tries:
                each.cancel()
            await asyncio.gather(*tries, return_exceptions=True)

    async def _timed(self, ask: Callable[[float], Awaitable[Lease]]) -> Lease:
        """Sends the request with the Lease's duration as timeout, and notes how long it took. Raises ApiError."""
        began = self.clock()
        try:
            return await ask(self._pace.timing.lease_seconds)
        finally:
            self._pace = self._pace.answered(self.clock() - began)

    def _stand_by(self) -> None:
        self._become(self._candidate.stopped())
        self._led = False
        assert self._candidate.seen is not None
        holder = self._candidate.seen.holder
        if holder != self._logged:
            log.info("standing by", extra={"leader": holder})
            self._logged = holder

    def _log_if_over(self) -> None:
        if self._led and not self.fence.is_open and self._logged is None:
            log.warning("Lease was not renewed in time; writes are blocked until it is")
            self._logged = ""


async def _first_of(tries: set[asyncio.Task[tuple[Lease, float]]]) -> tuple[Lease, float]:
    """The result of the first successful task. Raises an ApiError with a response, else any."""
    failure: ApiError | None = None
    for finished in asyncio.as_completed(tries):
        try:
            return await finished
        except ApiError as error:
            if failure is None or isinstance(failure, Unreachable):
                failure = error
    assert failure is not None
    raise failure
