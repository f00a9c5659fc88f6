"""Annotates the pods that were created before their resource name was in the policy, before the name's capacity is advertised.

Done once for a name that is new to the policy. A rejection is logged once, with the remedy, and delays no capacity; a transient
failure delays it for a few tries, and an unreachable API server for as long as it lasts.

Only pods without a node are listed, page by page. They are patched with nothing: an empty patch is still an update, so admission
policies apply and make the only change.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from nodedevice_kube.api_errors import ApiError, Conflict, Forbidden, Invalid, NotFound, NotLeading, Unreachable
from nodedevice_kube.paths import PODS

from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.objects.unwatched import PodRecord, PodSchema, pod_record
from nodedevice_operator.requiredplugins.pending_pods import AnnotationFailure, Tries, next_tries, to_annotate
from nodedevice_operator.requiredplugins.policy import is_annotated

log = logging.getLogger(__name__)

_CONCURRENT: Final = 8
_REMEDY: Final = "see markWaitingPods in docs/security.md; then change each such pod once, as by kubectl label"
_UNTRIED: Final = Tries()


class UnboundPodsApi(Requests):
    async def pages(self) -> AsyncIterator[list[PodRecord]]:
        query = {"fieldSelector": "spec.nodeName="}
        async for page in self._pages(*at(PODS), PodSchema, query):
            yield [pod_record(pod) for pod in page]

    async def admit_again(self, pod: PodRecord) -> bool:
        """Whether the pod has the annotation after another admission. Raises NotFound when it is gone, Conflict for another pod."""
        # the uid changes nothing: it makes sure that it is that pod
        data = await self._merge(*at(PODS, pod.name, pod.namespace), {"metadata": {"uid": pod.uid}})
        return is_annotated(decode("PATCH", "pods", data, PodSchema).metadata.annotations or {})


@dataclass(eq=False)
class PodAnnotator:
    api: UnboundPodsApi
    _: KW_ONLY
    is_on: bool
    clock: Callable[[], float] = time.monotonic
    _done: frozenset[str] = field(default=frozenset(), init=False)
    _added: frozenset[str] = field(default=frozenset(), init=False)
    _tries: dict[str, Tries] = field(default_factory=dict, init=False)

    def lacks(self, name: str) -> bool:
        """Whether pods without the annotation may still wait for that resource."""
        return self.is_on and name not in self._done

    def added(self, names: Collection[str]) -> None:
        """These were just put into the policy: pods that asked for one before are not annotated."""
        self._done -= frozenset(names)
        self._added |= frozenset(names)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the names that are in no whole policy any more."""
        self._done &= frozenset(names)
        self._tries = {name: tries for name, tries in self._tries.items() if name in names}

    async def annotate(self, in_force: Collection[str], advertised: Collection[str]) -> float | None:
        """Returns in how many seconds to retry; None if all is done. advertised: names that are done before. Raises NotLeading."""
        due = frozenset(filter(self.lacks, in_force))
        known = (due & frozenset(advertised)) - self._added
        self._done |= known
        due -= known
        now = self.clock()
        tried = {
            name: self._tries.pop(name, _UNTRIED) for name in due if self._tries.get(name, _UNTRIED).next_at <= now
        }
        if tried:
            troubles = await self._annotate(frozenset(tried))
            self._tries |= next_tries(tried, troubles, self.clock())
            due &= self._tries.keys()
            finished = frozenset(tried) - due
            self._done |= finished
            self._added -= finished
            if left := [trouble for trouble in troubles if not trouble.resources.isdisjoint(finished)]:
                _log_failure(finished, left)
            if due:
                log.debug("pending pods are not annotated yet; retrying", extra={"resource_names": sorted(due)})
        return max(0.0, min(self._tries[name].next_at for name in due) - self.clock()) if due else None

    async def _annotate(self, resources: frozenset[str]) -> list[AnnotationFailure]:
        """Raises NotLeading."""
        try:
            # read the whole list first: one that takes minutes would expire
            pages = self.api.pages()
            # a tenant's annotations are 256 KiB at most, of each pod
            found = [replace(pod, annotations={}) async for page in pages for pod in to_annotate(page, resources)]
        except ApiError as error:
            return [_trouble(error, resources)]
        slots = asyncio.Semaphore(_CONCURRENT)
        outcomes = await asyncio.gather(*(self._try(pod, slots) for pod in found), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        troubles = [outcome for outcome in outcomes if isinstance(outcome, AnnotationFailure)]
        if annotated := len(found) - len(troubles):
            log.info("pending pods annotated", extra={"pods": annotated, "resource_names": sorted(resources)})
        return troubles

    async def _try(self, pod: PodRecord, slots: asyncio.Semaphore) -> AnnotationFailure | None:
        """The failure, if any. Raises NotLeading."""
        async with slots:
            try:
                has_annotation = await self.api.admit_again(pod)
            except NotLeading:
                raise
            except (NotFound, Conflict):
                return None  # gone, or another pod: that one was annotated when it was created
            except ApiError as error:
                return _trouble(error, pod.asks_for, pod)
        if has_annotation:
            return None
        # each replica of the API server starts to enforce the policy by itself, and one may be late
        unchanged = "the policy nodedevice-required-plugins did not change it"
        return AnnotationFailure(unchanged, pod.asks_for, pod, is_transient=True)


def _trouble(error: ApiError, resources: frozenset[str], pod: PodRecord | None = None) -> AnnotationFailure:
    # a 403 without causes may be about one pod too: some webhooks deny like that; a 401 is a token that is about to be replaced
    is_forbidden = isinstance(error, Forbidden) and error.status == 403
    is_invalid = pod is not None and isinstance(error, Invalid)
    return AnnotationFailure(
        str(error),
        resources,
        pod,
        is_transient=not (is_forbidden or is_invalid),
        # pods were listed: only the patch of that pod failed
        is_unreachable=pod is None and isinstance(error, Unreachable),
        retry_after_seconds=error.retry_after_seconds,
    )


def _log_failure(names: Collection[str], troubles: list[AnnotationFailure]) -> None:
    first = troubles[0]
    fields = {"error": first.problem, "remedy": _REMEDY}
    if first.pod is None:
        log.error(
            "pending pods cannot be annotated; they may start without their node's agent",
            extra={"resource_names": sorted(names), **fields},
        )
    else:
        log.warning(
            "some pending pods are not annotated; they may start without their node's agent",
            extra={"pods": len(troubles), "namespace": first.pod.namespace, "pod": first.pod.name, **fields},
        )
