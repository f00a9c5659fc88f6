"""Has the pods marked that were made before their resource's name was in the policy, before the name's capacity is advertised.

Done once for a name that comes into the policy, not again for one that is advertised already. What is refused is told once, with
what to do, and holds no capacity back; a passing trouble does for a few tries, and an API server that is away does throughout.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection
from typing import Final

from nodedevice_operator.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    NotLeading,
    Unavailable,
    Unreachable,
)
from nodedevice_operator.requiredplugins.pending_pods import Tries, Trouble, UnboundPod, next_tries, to_mark
from nodedevice_operator.requiredplugins.unbound_pods import UnboundPods

log = logging.getLogger(__name__)

_AT_ONCE: Final = 8
_REMEDY: Final = "see markWaitingPods in docs/security.md; then change each such pod once, as by kubectl label"
_UNTRIED: Final = Tries()


class WaitingPods:
    """Which names have been seen to, and the work on the others. Names are told as they come and go."""

    def __init__(self, pods: UnboundPods, *, is_on: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._pods = pods
        self._is_on = is_on
        self._clock = clock
        self._done: frozenset[str] = frozenset()
        self._added: frozenset[str] = frozenset()
        self._tries: dict[str, Tries] = {}

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
        self._tries = {name: tries for name, tries in self._tries.items() if name in names}

    async def see_to(self, in_force: Collection[str], advertised: Collection[str]) -> float | None:
        """Mark who waits for one of the names that are in force; in how many seconds to try again, None where all is done.

        advertised: names whose pods were marked before they came onto a Node, unless they were put back into the policy since.
        Raises NotLeading.
        """
        due = frozenset(filter(self.lacks, in_force))
        known = (due & frozenset(advertised)) - self._added
        self._done |= known
        due -= known
        tried = {name: self._tries.pop(name, _UNTRIED) for name in due if self._is_time_for(name)}
        if tried:
            troubles = await self._mark(frozenset(tried))
            self._tries |= next_tries(tried, troubles, self._clock())
            due &= self._tries.keys()
            self._finish(tried.keys() - due, troubles)
            if due:
                log.debug("pods that wait already are not marked yet", extra={"resource_names": sorted(due)})
        return max(0.0, min(self._tries[name].next_at for name in due) - self._clock()) if due else None

    def _is_time_for(self, name: str) -> bool:
        return self._tries.get(name, _UNTRIED).next_at <= self._clock()

    def _finish(self, names: Collection[str], troubles: Collection[Trouble]) -> None:
        self._done |= frozenset(names)
        self._added -= frozenset(names)
        left = [trouble for trouble in troubles if not trouble.resources.isdisjoint(names)]
        if left:
            _tell(names, left)

    async def _mark(self, resources: frozenset[str]) -> list[Trouble]:
        """Raises NotLeading."""
        try:
            # all of them first: a list that goes on for minutes would be cut off
            found = [pod async for page in self._pods.pages() for pod in to_mark(page, resources)]
        except ApiError as error:
            return [_trouble(error, resources)]
        slots = asyncio.Semaphore(_AT_ONCE)
        outcomes = await asyncio.gather(*(self._try(pod, slots) for pod in found), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        troubles = [outcome for outcome in outcomes if isinstance(outcome, Trouble)]
        if marked := len(found) - len(troubles):
            log.info("pods that waited already are marked", extra={"pods": marked, "resource_names": sorted(resources)})
        return troubles

    async def _try(self, pod: UnboundPod, slots: asyncio.Semaphore) -> Trouble | None:
        """What was wrong; None for nothing. Raises NotLeading."""
        async with slots:
            try:
                is_marked = await self._pods.admit_again(pod)
            except NotLeading:
                raise
            except (NotFound, Conflict):
                return None  # gone, or another: that one was marked when it was made
            except ApiError as error:
                return _trouble(error, pod.asks_for, pod)
        if is_marked:
            return None
        # each replica of the API server takes the policy into force by itself, and one may be late
        unchanged = "the policy nodedevice-required-plugins did not change it"
        return Trouble(unchanged, pod.asks_for, pod, is_passing=True)


def _trouble(error: ApiError, resources: frozenset[str], pod: UnboundPod | None = None) -> Trouble:
    # a 403 without causes may be one pod's too: some webhooks refuse like that; a 401 is a token that is about to be replaced
    is_refused = isinstance(error, Forbidden) and error.status == 403
    is_wrong = pod is not None and isinstance(error, Invalid)
    return Trouble(
        str(error),
        resources,
        pod,
        is_passing=not (is_refused or is_wrong),
        # pods were listed: what has no answer is that pod's patch
        is_away=pod is None and isinstance(error, Unreachable),
        patience_seconds=(isinstance(error, Unavailable) and error.retry_after_seconds) or 0.0,
    )


def _tell(names: Collection[str], troubles: list[Trouble]) -> None:
    first = troubles[0]
    fields = {"problem": first.problem, "remedy": _REMEDY}
    if first.pod is None:
        log.error(
            "pods that wait already cannot be marked: they may start without their node's agent",
            extra={"resource_names": sorted(names), **fields},
        )
    else:
        log.warning(
            "pods that wait already are not marked: they may start without their node's agent",
            extra={"pods": len(troubles), "namespace": first.pod.namespace, "pod": first.pod.name, **fields},
        )
