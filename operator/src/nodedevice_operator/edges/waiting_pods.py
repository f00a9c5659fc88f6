"""Has the pods marked that were made before their resource's name was in the policy, before the name's capacity is advertised.

Done once for a name that comes into the policy, not again for one that is advertised already. What is refused is told once, with
what to do, and holds no capacity back; a passing trouble does for half a minute, and an API server that is away does throughout.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from nodedevice_operator.core.waiting_pods import UnboundPod, to_mark
from nodedevice_operator.edges.unbound_pods import UnboundPods
from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    Denied,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)

log = logging.getLogger(__name__)

_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 15.0
# with the delays before: some 30 s
_MOST_FAILURES: Final = 6
_AT_ONCE: Final = 8
_REMEDY: Final = "see markWaitingPods in docs/security.md; then change each such pod once, as by kubectl label"


class WaitingPods:
    """Which names have been seen to, and the work on the others. Names are told as they come and go."""

    def __init__(self, pods: UnboundPods, *, is_on: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._is_on = is_on
        self._clock = clock
        self._done: frozenset[str] = frozenset()
        self._added: frozenset[str] = frozenset()
        self._failures = 0
        self._not_before = 0.0

    def lacks(self, name: str) -> bool:
        """Whether pods may still wait for that resource without the mark."""
        return self._is_on and name not in self._done

    def added(self, names: Collection[str]) -> None:
        """We have just put these into the policy: whoever asked for one before is not marked."""
        self._done -= frozenset(names)
        self._added |= frozenset(names)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget what is in no whole policy any more."""
        self._done &= frozenset(names)

    async def see_to(self, in_force: Collection[str], advertised: Collection[str]) -> float | None:
        """Mark who waits for one of the names that are in force; in how many seconds to try again, None where all is done.

        advertised: names whose pods were marked before they came onto a Node, unless they were put back into the policy since.
        Raises NotLeading.
        """
        due = frozenset(filter(self.lacks, in_force))
        known = (due & frozenset(advertised)) - self._added
        self._done |= known
        due -= known
        if not due:
            return None
        if self._clock() < self._not_before:
            return self._not_before - self._clock()
        try:
            await self._mark(due)
        except NotLeading:
            raise
        except ApiError as error:
            if self._is_passing(error):
                return self._delay(error)
            fields = {"resource_names": sorted(due), "problem": str(error), "remedy": _REMEDY}
            log.error(
                "pods that wait already cannot be marked: they may start without their node's agent", extra=fields
            )
        self._failures = 0
        self._done |= due
        self._added -= due
        return None

    def _is_passing(self, error: ApiError) -> bool:
        return isinstance(error, Unreachable) or (
            not isinstance(error, Forbidden) and self._failures + 1 < _MOST_FAILURES
        )

    def _delay(self, error: ApiError) -> float:
        if not isinstance(error, Unreachable):
            self._failures += 1
        log.debug("pods that wait already are not marked yet", extra={"problem": str(error)})
        delay = min(_FIRST_DELAY_SECONDS * 2.0**self._failures, _LONGEST_DELAY_SECONDS)
        if isinstance(error, Unavailable):
            delay = max(delay, error.retry_after_seconds or 0.0)
        self._not_before = self._clock() + delay
        return delay

    async def _mark(self, resources: frozenset[str]) -> None:
        """Raises ApiError where it is not about one pod."""
        # all of them first: a list that goes on for minutes would be cut off
        found = [pod async for page in self._pods.pages() for pod in to_mark(page, resources)]
        slots = asyncio.Semaphore(_AT_ONCE)
        problems = await asyncio.gather(*(self._try(pod, slots) for pod in found), return_exceptions=True)
        for problem in problems:
            if isinstance(problem, BaseException):
                raise problem
        refused = [(pod, problem) for pod, problem in zip(found, problems, strict=True) if isinstance(problem, str)]
        marked = len(found) - len(refused)
        if marked:
            log.info("pods that waited already are marked", extra={"pods": marked, "resource_names": sorted(resources)})
        if refused:
            pod, problem = refused[0]
            fields = {"pods": len(refused), "namespace": pod.namespace, "pod": pod.name, "problem": problem}
            log.warning(
                "pods that wait already are not marked: they may start without their node's agent",
                extra={**fields, "remedy": _REMEDY},
            )

    async def _try(self, pod: UnboundPod, slots: asyncio.Semaphore) -> str | None:
        """What was wrong with that one; None for nothing. Raises ApiError where it is not about this pod."""
        async with slots:
            try:
                is_marked = await self._pods.admit_again(pod)
            except (NotFound, Conflict):
                return None  # gone, or another: that one was marked when it was made
            except (Denied, Invalid) as error:
                return str(error)
        return None if is_marked else "the policy nodedevice-required-plugins did not change it"
