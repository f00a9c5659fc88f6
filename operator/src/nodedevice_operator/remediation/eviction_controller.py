"""Evicts the pods that the policy names, by the Eviction API, so that PodDisruptionBudgets are honoured.

A pod is read first: it must be that pod, on that node, and not ending already. Agents are not trusted blindly. A static pod is only
reported: an eviction of its mirror pod ends nothing, and the kubelet creates another one.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

from nodedevice_common.tasks import apart
from nodedevice_kube.api_errors import ApiError, Conflict, NotFound, NotLeading
from nodedevice_kube.paths import PODS

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import is_real
from nodedevice_operator.observability.events import WARNING, Event, EventReason, about_pod
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.remediation.eviction_policy import EvictionCandidate, PendingEvictions, Policy, candidates

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 2.0


class EvictionsApi(Requests):
    async def evict_pod(self, namespace: str, name: str, uid: str) -> None:
        """Raises Unavailable while a PodDisruptionBudget forbids it, NotFound when it is gone, Conflict for another pod."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid}},
        }
        await self._client.request("POST", *at(PODS, name, namespace, "eviction"), body=body)


@dataclass(eq=False)
class EvictionController:
    """The task; it does nothing where the policy of every resource is to report."""

    cache: Cache
    api: EvictionsApi
    recorder: EventRecorder
    policies: Mapping[str, Policy]
    fence: WriteFence
    _: KW_ONLY
    delay_seconds: float
    per_minute: float
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._pending = PendingEvictions(self.delay_seconds, self.per_minute, self.clock())

    async def work(self) -> None:
        while True:
            if self.fence.is_open and self.cache.is_complete and "evict" in self.policies.values():
                await self.reconcile()
            else:
                # whether a device recovers meanwhile is not checked: the delay begins again
                self._pending.update((), self.clock())
            await asyncio.sleep(_POLL_SECONDS)

    async def reconcile(self) -> None:
        found: dict[str, EvictionCandidate] = {}
        async for records in self.cache.node_devices.counting_in_steps():
            for uid, candidate in candidates(filter(is_real, records), self.policies).items():
                found.setdefault(uid, candidate)
        self._pending.update(found, self.clock())
        for uid in self._pending.due(self.clock()):
            pod = found[uid]
            try:
                with apart("evictions", NotLeading, pod=f"{pod.namespace}/{pod.name}"):
                    await self._evict(pod)
            except NotLeading:
                return

    async def _evict(self, pod: EvictionCandidate) -> None:
        rejection: ApiError | None = None
        fields = {"namespace": pod.namespace, "pod": pod.name}
        try:
            found = await self.api.read_pod(pod.namespace, pod.name)
            if found.uid == pod.uid and found.node == pod.node and not (found.is_ending or found.is_mirror):
                await self.api.evict_pod(pod.namespace, pod.name, pod.uid)
                log.warning("pod evicted", extra={**fields, "reason": pod.why})
                self._post(pod, EventReason.POD_EVICTED, f"evicted from {pod.node}: {pod.why}")
        except (NotFound, Conflict):
            log.debug("pod to evict is gone already", extra=fields)
        except NotLeading:
            raise
        except ApiError as error:
            rejection = error
            if not self._pending.by_pod[pod.uid].rejections:
                # once a pod: it is retried for as long as it takes
                extra = {**fields, "reason": pod.why, "error": error.problem}
                log.warning("eviction was rejected; retrying", extra=extra)
                message = f"cannot be evicted yet ({pod.why}); retrying: {error.problem}"
                self._post(pod, EventReason.EVICTION_REFUSED, message)
        retry_after = rejection.retry_after_seconds if rejection else 0.0
        self._pending.tried(pod.uid, self.clock(), is_rejected=rejection is not None, retry_after_seconds=retry_after)

    def _post(self, pod: EvictionCandidate, reason: str, message: str) -> None:
        self.recorder.post(Event(about_pod(pod.namespace, pod.name, pod.uid), WARNING, reason, message))
