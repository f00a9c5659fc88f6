"""Binds a pod to a node with its parts: chooses the parts, promises them, and writes node and parts in one request.

A refused bind withdraws the promise. After an unknown outcome the promise stays until a watch shows the pod, or a consistent read
decides it once no request can still arrive. So no part is promised twice.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from nodedevice_api.assigned_parts import Assigned
from nodedevice_common.tasks import apart
from nodedevice_kube.api_errors import ApiError, Conflict, Forbidden, Invalid, NotFound, NotLeading
from nodedevice_kube.retries import Retries

from nodedevice_operator.extender.filter_result import NotFitting
from nodedevice_operator.extender.filter_score import Fleet
from nodedevice_operator.extender.metrics import ExtenderMetrics
from nodedevice_operator.extender.pods_api import PodsApi
from nodedevice_operator.extender.send_limit import SendLimit
from nodedevice_operator.extender.wire import BindRequest
from nodedevice_operator.objects.bound_pod import PodNeeds

log = logging.getLogger(__name__)

# An API server ends every request after a minute; one that it got from us is decided then.
UNSEEN_SECONDS: Final = 60.0
_RESOLVE_SECONDS: Final = 1.0
_BUSY: Final = 429
# Binds at the API server at one time: 128 were not faster. Each has a connection of its own.
MOST_SENT: Final = 32
# Binds under way, sent or waiting. At this number filters wait, so that kube-scheduler needs fewer connections than the port
# has.
MOST_UNDER_WAY: Final = 64
# kube-scheduler waits for a response for five seconds, by the chart's default
_MOST_WAITING_SECONDS: Final = 2.0
_MOST_RETRYING_SECONDS: Final = 4.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0
# needs of pods between filter and bind; of a pod beyond these they are read from the API
_MOST_REMEMBERED: Final = 4096


class Binder:
    """Binds several pods side by side, and each of them by one request at a time."""

    def __init__(
        self, fleet: Fleet, pods: PodsApi, metrics: ExtenderMetrics, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fleet = fleet
        self._pods = pods
        self._metrics = metrics
        self._clock = clock
        self._needs: dict[str, PodNeeds] = {}
        self._under_way: set[str] = set()
        self._room = asyncio.Event()
        self._room.set()
        self._sending = SendLimit(MOST_SENT)
        # by UID: binds that no watch has shown yet, and when the pod is read (by the clock)
        self._unseen: dict[str, tuple[BindRequest, float]] = {}
        metrics.unseen.set_function(lambda: len(self._unseen))

    def remember(self, uid: str, needs: PodNeeds) -> None:
        """What the pod of a filter needs: the bind that follows does not say."""
        self._needs[uid] = needs
        if len(self._needs) > _MOST_REMEMBERED:
            del self._needs[next(iter(self._needs))]

    def seen(self, uid: str) -> None:
        """A watch or a list shows that pod on a node, or that it is gone from there."""
        self._unseen.pop(uid, None)
        self._needs.pop(uid, None)

    async def bind(self, pod: BindRequest) -> str:
        """Bind it; empty when that is done, otherwise why not, for the pod's event."""
        if pod.uid in self._under_way:
            return "an earlier bind of this pod is still under way"
        with self._marked(pod.uid):
            return await self._bind(pod)

    async def wait_for_room(self) -> None:
        """Waits for a while until few enough binds are under way."""
        if not self._room.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._room.wait(), _MOST_WAITING_SECONDS)

    async def work(self) -> None:
        """Resolves binds that no watch has shown in time, and expires promises also without requests."""
        while True:
            await asyncio.sleep(_RESOLVE_SECONDS)
            self._fleet.expire(self._clock())
            await self.resolve_due()

    async def resolve_due(self) -> None:
        for uid in list(self._unseen):
            # each at its turn: while the one before was read, this one may have been seen, or bound again
            pod, due = self._unseen.get(uid, (None, 0.0))
            if pod is None or due > self._clock() or uid in self._under_way:
                continue
            self._under_way.add(uid)
            try:
                with apart("binds of unknown outcome", pod=pod.key):
                    await self._resolve(pod, is_decided=True)
            finally:
                self._under_way.discard(uid)

    async def _bind(self, pod: BindRequest) -> str:
        try:
            needs = self._needs.get(pod.uid)
            if needs is None:
                needs = await self._pods.needs(pod)
        except ApiError as error:
            return f"cannot read the pod: {error}"
        now = self._clock()
        assigned = self._fleet.assign(pod.uid, needs, pod.node, now)
        if isinstance(assigned, NotFitting):
            self._metrics.bind_conflicts.inc()
            return assigned.reason
        self._fleet.promise(pod.uid, needs, pod.node, assigned, now)
        # the watch may show the bind before its response arrives
        is_repeated = pod.uid in self._unseen
        self._unseen[pod.uid] = pod, now + UNSEEN_SECONDS
        try:
            async with self._sending.place():
                await self._send(pod, assigned)
        except ApiError as error:
            return await self._after_failure(pod, error, is_repeated)
        self._fleet.confirm(pod.uid)
        return ""

    async def _send(self, pod: BindRequest, assigned: Assigned) -> None:
        """Binds the pod. Retries while the API server is busy, which is when it has not read the request. Raises ApiError."""
        pauses, left = Retries(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS), _MOST_RETRYING_SECONDS
        while True:
            try:
                await self._pods.bind(pod, assigned)
            except ApiError as error:
                if error.status != _BUSY:
                    raise
                pause = pauses.failed(error, random.random())
                self._sending.refused(pause)
                left -= pause
                if left < 0:
                    raise
            else:
                self._sending.succeeded()
                return
            await asyncio.sleep(pause)

    @contextmanager
    def _marked(self, uid: str) -> Iterator[None]:
        """Marks the pod as one whose bind is under way."""
        self._under_way.add(uid)
        if len(self._under_way) >= MOST_UNDER_WAY:
            self._room.clear()
        try:
            yield
        finally:
            self._under_way.discard(uid)
            if len(self._under_way) < MOST_UNDER_WAY:
                self._room.set()

    async def _after_failure(self, pod: BindRequest, error: ApiError, is_repeated: bool) -> str:
        """Returns why the bind failed; "" if it was done after all. is_repeated: an earlier bind of the pod may have succeeded."""
        extra = {"pod": pod.key, "pod_uid": pod.uid, "node": pod.node, "error": str(error)}
        log.warning("bind got an error; its outcome is being checked", extra=extra)
        if isinstance(error, Conflict | NotFound):
            return await self._resolve(pod, is_decided=not is_repeated)
        is_refused = isinstance(error, Invalid | Forbidden | NotLeading) or error.status == _BUSY
        if is_refused and not is_repeated:
            self._withdraw(pod)
            return f"cannot bind: {error}"
        return f"cannot bind: {error}; the parts stay reserved until the outcome is known"

    async def _resolve(self, pod: BindRequest, *, is_decided: bool) -> str:
        """Reads the pod after a bind: "" if it is bound. is_decided: no request can still arrive."""
        try:
            uid, node, has_ended = await self._pods.read(pod)
        except NotFound:
            uid, node, has_ended = "", "", False
        except ApiError as error:
            return f"cannot bind, and cannot read the pod: {error}"
        is_bound = uid == pod.uid and node == pod.node
        if is_bound and not has_ended:
            self._fleet.confirm(pod.uid)
            if pod.uid in self._unseen:
                self._unseen[pod.uid] = pod, self._clock() + UNSEEN_SECONDS
            return ""
        if uid == pod.uid and not node and not is_decided:
            return "the outcome of the bind of this pod is still unknown"
        if uid != pod.uid or is_bound:
            self._unseen.pop(pod.uid, None)
            # it may have been bound before, and its agent may have allocated parts to it
            self._fleet.pod_gone(pod.uid, self._clock())
            if is_bound:
                # the watch leaves it out
                return "the pod has ended"
            return "the pod was deleted" + (", and another pod has its name" if uid else "")
        self._withdraw(pod)
        return f"the pod is bound to node {node} already" if node else "the API server has not bound the pod"

    def _withdraw(self, pod: BindRequest) -> None:
        self._unseen.pop(pod.uid, None)
        self._fleet.withdraw(pod.uid)
