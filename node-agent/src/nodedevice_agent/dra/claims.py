"""Reads the ResourceClaims of this node's pods, one at a time, for details of devices that the kubelet does not report.

A claim is read once for each of its pods, and again if the kubelet shows a device that the claim lacks. Claims are never listed
or watched. Without the permission, the agent retries once an hour; `agents.observeClaims: false` in the chart revokes it.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from nodedevice_common.log_once import LogOnce
from nodedevice_common.pacing import Backoff, TokenBucket, jittered
from nodedevice_kube.api_errors import ApiError, Forbidden, Unauthorized

from nodedevice_agent.dra.holders import ClaimName, Wanted
from nodedevice_agent.dra.holdings import Claim, DeviceKey

log = logging.getLogger(__name__)

PER_SECOND: Final = 10.0
AT_ONCE: Final = 20
# the most claims of a node; further ones are not read
MAX_CLAIMS: Final = 1024
RARELY_SECONDS: Final = 3600.0
# after that devices are shown without their claim: an API server may be slow, and a node has hundreds of claims
LONGEST_WAIT_SECONDS: Final = 30.0
_FIRST_PAUSE_SECONDS: Final = 1.0
_LONGEST_PAUSE_SECONDS: Final = 300.0
_SPREAD: Final = 0.2
_FORBIDDEN: Final = "the agent may not read claims: consumed capacity and admin access of DRA devices are not shown"
_REFUSED: Final = "a claim cannot be read: consumed capacity and admin access of its devices are not shown"

# reads a claim by namespace and name; raises ApiError
Get = Callable[[str, str], Awaitable[Claim]]


class _Entry:
    """One ResourceClaim. pods, devices: current demand; read_for, read_with: demand at the last read.

    due: earliest next read. since: when the last pod came. tried_for: pods for which a read succeeded or failed.
    """

    def __init__(self) -> None:
        self.pods: frozenset[str] = frozenset()
        self.devices: frozenset[DeviceKey]
        self.read_for: frozenset[str] = frozenset()
        self.tried_for: frozenset[str] = frozenset()
        self.read_with: frozenset[DeviceKey] = frozenset()
        self.claim: Claim | None = None
        self.due: float
        self.since: float
        self.pauses = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)

    @property
    def is_wanted(self) -> bool:
        known = self.claim.devices if self.claim is not None else frozenset[DeviceKey]()
        return bool(self.pods - self.read_for or self.devices - known - self.read_with)


class ClaimReader:
    """run() until cancelled. on_read: called after a claim changed."""

    def __init__(self, get: Get) -> None:
        self.on_read: Callable[[], None] = lambda: None
        self._get = get
        self._now = asyncio.get_running_loop().time
        self._problems = LogOnce(log)
        self._entries: dict[ClaimName, _Entry] = {}
        self._budget = TokenBucket(PER_SECOND, AT_ONCE, self._now())
        # the budget of all claims
        self._due = -math.inf
        self._is_forbidden = False
        self._changed = asyncio.Event()

    def wanted(self, claims: Wanted) -> None:
        """Set all claims to read; others are forgotten."""
        # known claims have priority
        names = sorted(claims, key=lambda name: (name not in self._entries, name))[:MAX_CLAIMS]
        self._entries = {name: self._entries.get(name) or _Entry() for name in names}
        error = f"more than {MAX_CLAIMS} are used on this node" if len(claims) > MAX_CLAIMS else ""
        self._problems.report("claims are not read", error)
        for name, entry in self._entries.items():
            pods, devices = claims[name]
            if pods - entry.pods:
                # the claim may be a new one of the same name
                entry.due, entry.since = -math.inf, self._now()
            entry.pods, entry.devices = pods, devices
            entry.read_for, entry.tried_for = entry.read_for & pods, entry.tried_for & pods
        self._changed.set()

    def of(self, namespace: str, name: str, pod_uid: str) -> Claim | None:
        """The claim from a read for that pod, or None."""
        entry = self._entries.get((namespace, name))
        return entry.claim if entry is not None and pod_uid in entry.read_for else None

    def is_awaited(self, namespace: str, name: str, pod_uid: str) -> bool:
        """Whether the first read for that pod is about to happen."""
        entry = self._entries.get((namespace, name))
        if entry is None or self._is_forbidden or pod_uid in entry.tried_for:
            return False
        return self._now() - entry.since < LONGEST_WAIT_SECONDS

    async def run(self) -> None:
        while True:
            self._changed.clear()
            waiting = {name: entry.due for name, entry in self._entries.items() if entry.is_wanted}
            name = min(waiting, key=waiting.__getitem__, default=None)
            due = math.inf if name is None else max(waiting[name], self._due)
            if name is None or due > self._now():
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._changed.wait()
                continue
            await asyncio.sleep(self._budget.reserve(self._now()))
            if name in self._entries:
                await self._read(name, self._entries[name])

    async def _read(self, name: ClaimName, entry: _Entry) -> None:
        pods, devices, before = entry.pods, entry.devices, (entry.claim, entry.read_for, entry.tried_for)
        try:
            entry.claim = await self._get(*name)
        except ApiError as error:
            entry.tried_for = pods
            self._failed(name, entry, error)
        else:
            entry.read_for, entry.read_with, entry.tried_for, entry.due = pods, devices, pods, -math.inf
            entry.pauses.reset()
            if self._is_forbidden:
                # the devices of these claims are already shown
                self._stop_waiting()
                self._is_forbidden = False
            for message in (_REFUSED, _FORBIDDEN):
                self._problems.report(message, "")
        if (entry.claim, entry.read_for, entry.tried_for) != before:
            self.on_read()

    def _stop_waiting(self) -> None:
        for each in self._entries.values():
            each.tried_for = each.pods

    def _failed(self, name: ClaimName, entry: _Entry, error: ApiError) -> None:
        rarely = self._now() + jittered(RARELY_SECONDS, _SPREAD, random.random())
        if error.is_temporary or isinstance(error, Unauthorized):
            entry.due = self._now() + jittered(entry.pauses.next(), _SPREAD, random.random())
            # the API server does not respond
            self._stop_waiting()
            log.debug("cannot read a claim", extra={"namespace": name[0], "claim": name[1], "error": str(error)})
        elif isinstance(error, Forbidden):
            self._due, self._is_forbidden = rarely, True
            self._problems.report(_FORBIDDEN, str(error), logging.INFO)
        else:
            entry.due = rarely
            self._problems.report(_REFUSED, str(error), logging.INFO)
