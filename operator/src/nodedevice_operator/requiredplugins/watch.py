"""What is known of the policy and its binding: whether the API server has such objects at all, and how these two are stored.

Each is read and then watched, so that somebody else's change or deletion is known at once. It is edges.required_plugins that keeps
them, and puts in here what it wrote. An API server that has no such policies is asked again now and then: it may be upgraded.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum
from typing import Final

from nodedevice_common.backoff import exponential_seconds
from tenacity import AsyncRetrying, retry_if_exception_type, wait_random_exponential

from nodedevice_operator.errors import ApiError, NotFound
from nodedevice_operator.requiredplugins.objects import PolicyObjects
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES, Spec, Stored
from nodedevice_operator.requiredplugins.policy_reads import PolicyReads

log = logging.getLogger(__name__)

REMEDY: Final = {"remedy": "set required_plugins of the runtime's default_validator, as docs/install.md shows"}

_ASK_AGAIN_SECONDS: Final = 300.0
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0
# what is read to know whether there are such policies
_DISCOVERY: Final = "apis"


class Keeping(Enum):
    """How it stands with the policy."""

    UNKNOWN = "unknown"
    KEPT = "kept"
    NOT_SERVED = "not served"
    OFF = "off"


class PolicyWatch:
    """What is known. `watch` runs for ever, once for each of the two objects.

    changed: called when one of them was taken in. upgraded: called when it turns out that the API server has no such policies,
    and when it has them after all.
    """

    def __init__(
        self, objects: PolicyObjects, changed: Callable[[], None], upgraded: Callable[[], None], *, is_on: bool
    ) -> None:
        self._objects = objects
        self._changed = changed
        self._upgraded = upgraded
        self.keeping = Keeping.UNKNOWN if is_on else Keeping.OFF
        self._specs: dict[str, Spec | None] = {}
        self._reads = PolicyReads()

    @property
    def is_complete(self) -> bool:
        """Whether both objects were read."""
        return self._specs.keys() == {POLICIES, BINDINGS}

    @property
    def stored(self) -> Stored:
        """The two objects as they were last seen or written; an object that was never read is as one that is not there."""
        return Stored(self._specs.get(POLICIES), self._specs.get(BINDINGS))

    def put(self, kind: str, spec: Spec | None) -> None:
        """That object (its plural) is this now: we have just written it, or deleted it."""
        self._specs[kind] = spec

    async def watch(self, kind: str) -> None:
        """Keep what is known of that object (its plural), for ever."""
        failures = 0
        while True:
            if not await self._is_served():
                await asyncio.sleep(_ASK_AGAIN_SECONDS)
                continue
            try:
                version = await self._read(kind)
                async for spec in self._objects.follow(kind, version):
                    failures = 0
                    self._take(kind, spec)
            except ApiError as error:
                failures += 1
                log.debug("policy not watched", extra={"kind": kind, "problem": str(error)})
            await asyncio.sleep(exponential_seconds(failures, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS))

    async def _read(self, kind: str) -> str:
        """Take in that object; the version from which a watch goes on. Raises ApiError, told once until it works again."""
        try:
            spec, version = await self._objects.read(kind)
        except ApiError as error:
            self._reads.failed(kind, error, was_read=kind in self._specs)
            raise
        self._reads.worked(kind)
        self._take(kind, spec)
        return version

    def _take(self, kind: str, spec: Spec | None) -> None:
        self.put(kind, spec)
        self._changed()

    async def _is_served(self) -> bool:
        """Whether the API server has such policies; asked until it answers, and told once where it has not."""
        if self.keeping in (Keeping.OFF, Keeping.KEPT):
            return self.keeping is Keeping.KEPT
        # all of them: an API server that has just begun forbids what it has not read the roles for yet
        passing = retry_if_exception_type(ApiError)
        served: frozenset[str] = frozenset()
        async for attempt in AsyncRetrying(retry=passing, wait=wait_random_exponential(0.25, _LONGEST_DELAY_SECONDS)):
            with attempt:
                try:
                    served = await self._objects.served()
                except NotFound:
                    served = frozenset()
                except ApiError as error:
                    self._reads.failed(_DISCOVERY, error, was_read=False)
                    raise
        self._reads.worked(_DISCOVERY)
        before, self.keeping = self.keeping, Keeping.KEPT if {POLICIES, BINDINGS} <= served else Keeping.NOT_SERVED
        if self.keeping is Keeping.NOT_SERVED and before is Keeping.UNKNOWN:
            log.warning(
                "API server has no MutatingAdmissionPolicy v1: pods wait for their node's agent only where the runtime requires it",
                extra=REMEDY,
            )
        if before is not self.keeping and Keeping.NOT_SERVED in (before, self.keeping):
            self._upgraded()
        return self.keeping is Keeping.KEPT
