"""Keeps the policy of core.required_plugins: a name is in it before its capacity is advertised, and until no node needs it.

Before that, pods that wait for it already are marked too (edges.waiting_pods). Somebody else's change or deletion is seen by
edges.policy_watch, and undone. Where the API server has no such policies, or the operator was told to keep none, nothing is
waited for, and the log says what else holds pods back; where it has none, the condition Advertised says so too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.backoff import exponential_seconds

from nodedevice_operator.errors import ApiError, NotFound, NotLeading, Unauthorized
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.metrics.metrics import Metrics
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.requiredplugins import policy as core
from nodedevice_operator.requiredplugins.annotate_pods import WaitingPods
from nodedevice_operator.requiredplugins.objects import PolicyObjects
from nodedevice_operator.requiredplugins.pending_pods import advertised
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES, Spec, Step
from nodedevice_operator.requiredplugins.policy_reads import RIGHTS
from nodedevice_operator.requiredplugins.watch import REMEDY, Keeping, PolicyWatch

log = logging.getLogger(__name__)

# A name that no NodeDevice has any more is found by looking: its end is no urgent news.
_LOOK_SECONDS: Final = 10.0
_SOON_SECONDS: Final = 0.25
_FIRST_DELAY_SECONDS: Final = 0.5
_LONGEST_DELAY_SECONDS: Final = 30.0


class RequiredPlugins:
    """The keeper. `work` and `watch` run for ever; `unguarded` is asked before capacity is written."""

    def __init__(
        self,
        objects: PolicyObjects,
        waiting: WaitingPods,
        cache: Cache,
        touch: Callable[[str], None],
        metrics: Metrics,
        *,
        is_on: bool,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._waiting = waiting
        self._cache = cache
        self._touch = touch
        self._metrics = metrics
        self._leads = leads
        self._clock = clock
        self._known = PolicyWatch(objects, self._changed, self._touch_all, is_on=is_on)
        # by kind, what was sent and what the API server made of it
        self._accepted: dict[str, tuple[Spec, Spec]] = {}
        self._wanted: tuple[str, ...] = ()
        self._since: dict[str, float] = {}
        self._wake = asyncio.Event()
        self._failures = 0
        self._is_told = False

    @property
    def lacks_policies(self) -> bool | None:
        """Whether the API server has no such policies; None where that is not known yet."""
        return None if self._known.keeping is Keeping.UNKNOWN else self._known.keeping is Keeping.NOT_SERVED

    def unguarded(self, records: Iterable[NodeDeviceRecord]) -> frozenset[str]:
        """Resources among these whose pods the API server does not make wait yet, though it is going to."""
        if self._known.keeping in (Keeping.OFF, Keeping.NOT_SERVED):
            return frozenset()
        return frozenset(
            name for name in core.names_of(records) if not self._is_in_force(name) or self._waiting.lacks(name)
        )

    def heard(self, record: NodeDeviceRecord) -> None:
        """A NodeDevice came or changed: its resource may be new to the policy."""
        if record.runtime == names.RUNTIME_NRI and record.resource not in self._wanted:
            self._wake.set()

    def wake(self) -> None:
        """Look now: this operator has begun to lead."""
        self._wake.set()

    async def work(self) -> None:
        """Bring the policy to what the NodeDevices ask for, again and again."""
        if self._known.keeping is Keeping.OFF:
            log.info(
                "policy is switched off: pods wait for their node's agent only where the runtime requires it",
                extra=REMEDY,
            )
        while True:
            is_kept = self._known.keeping in (Keeping.UNKNOWN, Keeping.KEPT)
            pause = await self._look_once() if is_kept else _LOOK_SECONDS
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    async def watch(self, kind: str) -> None:
        """Keep what is known of that object (its plural), for ever."""
        await self._known.watch(kind)

    async def _look_once(self) -> float:
        """Do what is to be done; in how many seconds to look again."""
        if not self._cache.is_complete or not self._known.is_complete:
            return _SOON_SECONDS  # nothing can be said before everything was seen once
        self._wanted = core.names_of(record for record in self._cache.node_devices.values() if is_real(record))
        try:
            await self._bring_about()
        except NotLeading:
            return _LOOK_SECONDS
        except ApiError as error:
            return self._delay(error)
        self._failures = 0
        self._is_told = False
        self._count_in()
        try:
            pause = await self._see_to_waiting()
        except NotLeading:
            return _LOOK_SECONDS
        waits = [since + core.SETTLE_SECONDS - self._clock() for since in self._since.values()]
        if any(wait > 0 for wait in waits):
            return max(0.0, min(wait for wait in waits if wait > 0)) + 0.01
        self._touch_guarded()
        return pause

    async def _bring_about(self) -> None:
        steps = self._plan() if self._leads() else ()
        guarded = core.guarded_by(self._known.stored)
        for step in steps:
            self._waiting.added(frozenset(self._wanted) - guarded)
            await self._carry_out(step)

    async def _see_to_waiting(self) -> float:
        """Have pods marked that wait for a name that is in force now; in how many seconds to look again. Raises NotLeading."""
        if not self._leads():
            return _LOOK_SECONDS
        in_force = [name for name in self._since if self._is_in_force(name)]
        again = await self._waiting.see_to(in_force, advertised(filter(is_real, self._cache.node_devices.values())))
        return _LOOK_SECONDS if again is None else again

    async def _carry_out(self, step: Step) -> None:
        if step.spec is None:
            try:
                await self._objects.delete(step.kind)
            except NotFound:
                log.debug("policy was gone already", extra={"kind": step.kind})
            self._known.put(step.kind, None)
            log.info("policy removed", extra={"kind": step.kind})
            return
        spec = await self._objects.apply(step.kind, step.spec)
        if spec != step.spec:
            # what others put into its lists is theirs to server-side apply, and would stay
            spec = await self._objects.replace(step.kind, step.spec)
        self._accepted[step.kind] = (step.spec, spec)
        self._known.put(step.kind, spec)
        log.info("policy written", extra={"kind": step.kind, "resource_names": len(self._wanted)})

    def _changed(self) -> None:
        self._count_in()
        self._wake.set()

    def _count_in(self) -> None:
        """Since when each name is in a policy that is whole; what is not whole protects nobody, however long."""
        is_whole = bool(self._wanted) and not self._plan()
        now = self._clock()
        self._since = {name: self._since.get(name, now) for name in self._wanted} if is_whole else {}
        self._waiting.keep_only(self._since)
        self._metrics.policy_names.set(len(self._since))

    def _is_in_force(self, name: str) -> bool:
        since = self._since.get(name)
        return since is not None and self._clock() - since >= core.SETTLE_SECONDS

    def _plan(self) -> tuple[Step, ...]:
        """What is to be done now. What the API server made of a spec for other names says nothing of the one for these."""
        wanted = {POLICIES: core.policy_spec(self._wanted), BINDINGS: core.binding_spec()}
        accepted = {kind: made for kind, (sent, made) in self._accepted.items() if sent == wanted[kind]}
        return core.plan(self._wanted, self._known.stored, accepted)

    def _delay(self, error: ApiError) -> float:
        self._failures += 1
        # that nobody knows us is told by whoever watches over the API server
        if not self._is_told and not isinstance(error, Unauthorized):
            self._is_told = True
            fields: dict[str, Any] = {"problem": str(error), **RIGHTS}
            log.error("policy cannot be kept: new resource names are not advertised until it can", extra=fields)
        return exponential_seconds(self._failures, _FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)

    def _touch_guarded(self) -> None:
        """Have the nodes looked at that waited for it. Those that wait for something else are looked at in their own time."""
        for record in self._cache.node_devices.values():
            told = record.conditions.get(names.Condition.ADVERTISED)
            if record.runtime == names.RUNTIME_NRI and (told is None or told.reason == names.Reason.POLICY_PENDING):
                self._touch(record.node)

    def _touch_all(self) -> None:
        """Whether the API server has such policies stands in a condition of each NodeDevice."""
        for node in self._cache.names_of_nodes():
            self._touch(node)
