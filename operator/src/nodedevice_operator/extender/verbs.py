"""The verbs filter, prioritize, bind and preempt of kube-scheduler, from request bytes to response bytes. The fleet decides."""

import asyncio
import time
from typing import Final, TypeVar

import msgspec

from nodedevice_operator.extender.activity import Activity
from nodedevice_operator.extender.binder import Binder
from nodedevice_operator.extender.filter_score import Fleet, Policy
from nodedevice_operator.extender.preemption import choose
from nodedevice_operator.extender.preferences import PendingPodSchema, has_preference
from nodedevice_operator.extender.server import NotActive, Verb
from nodedevice_operator.extender.steps import Steps
from nodedevice_operator.extender.wire import (
    BadRequest,
    BindAnswer,
    BindRequest,
    FilterRequest,
    HostPriority,
    MetaPod,
    MetaVictims,
    NotYet,
    PreemptAnswer,
    PreemptRequest,
    decode,
    filter_answer,
)
from nodedevice_operator.objects.bound_pod import BoundPodSchema, PodNeeds, pod_needs

T = TypeVar("T")

OK: Final = "ok"
NO_FIT: Final = "no_fit"
LATER: Final = "later"
_NOT_YET: Final = "{0}; retrying, as pods that leave node {1} make room"


class Verbs:
    """Each verb raises BadRequest for a malformed request, and NotActive on a standby."""

    def __init__(
        self, fleet: Fleet, binder: Binder, activity: Activity, policy: Policy, *, names_best: bool = True
    ) -> None:
        self._fleet = fleet
        self._binder = binder
        self._activity = activity
        self._policy: Policy = policy
        self._names_best = names_best

    def by_name(self) -> dict[str, Verb]:
        """The verbs by the path that kube-scheduler is configured with."""
        return {"filter": self.filter, "prioritize": self.prioritize, "bind": self.bind, "preempt": self.preempt}

    async def filter(self, body: bytes) -> tuple[bytes, str]:
        self._check()
        request = decode(body, FilterRequest)
        pod, uid, needs = _pod(request)
        named = request.named()
        self._binder.remember(uid, needs)
        await self._binder.wait_for_room()
        self._check()
        names_best = self._names_best and not has_preference(pod)
        now = time.monotonic()
        found = await in_turns(self._fleet.filter(uid, needs, named, now, self._policy, names_best=names_best))
        if found.soon:
            return msgspec.json.encode(NotYet(_NOT_YET.format(found.failed[found.soon], found.soon))), LATER
        answer = filter_answer(named, found.fitting, found.failed, found.unresolvable)
        return msgspec.json.encode(answer), OK if found.fitting else NO_FIT

    async def prioritize(self, body: bytes) -> tuple[bytes, str]:
        self._check()
        request = decode(body, FilterRequest)
        _, uid, needs = _pod(request)
        scores = await in_turns(self._fleet.score(uid, needs, request.named(), self._policy, time.monotonic()))
        return msgspec.json.encode([HostPriority(node, score) for node, score in scores]), OK

    async def bind(self, body: bytes) -> tuple[bytes, str]:
        self._check()
        request = decode(body, BindRequest)
        if not (request.name and request.namespace and request.uid and request.node):
            raise BadRequest("PodName, PodNamespace, PodUID and Node must not be empty")
        problem = await self._binder.bind(request)
        return msgspec.json.encode(BindAnswer(problem)), NO_FIT if problem else OK

    async def preempt(self, body: bytes) -> tuple[bytes, str]:
        self._check()
        request = decode(body, PreemptRequest)
        pod, given = decode(request.pod, BoundPodSchema), request.victims()
        uids = {node: [each.uid for each in of.pods or ()] for node, of in given.items()}
        found = await in_turns(choose(self._fleet, pod.metadata.uid, pod_needs(pod), pod.spec.priority or 0, uids))
        answer = {
            node: MetaVictims([MetaPod(uid) for uid in victims], given[node].violations)
            for node, victims in found.items()
        }
        return msgspec.json.encode(PreemptAnswer(answer)), OK if answer else NO_FIT

    def _check(self) -> None:
        problem = self._activity.problem()
        if problem:
            raise NotActive(problem)


async def in_turns(steps: Steps[T]) -> T:
    """What the steps return; others have their turn between them."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)


def _pod(request: FilterRequest) -> tuple[PendingPodSchema, str, PodNeeds]:
    """The pod, its UID and needs. Raises BadRequest."""
    pod = decode(request.pod, PendingPodSchema)
    if not pod.metadata.uid:
        raise BadRequest("Pod has no metadata.uid")
    return pod, pod.metadata.uid, pod_needs(pod)
