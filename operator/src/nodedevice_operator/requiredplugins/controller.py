"""Keeps the policy of required plugins: a name is in it before its capacity is advertised, and until no node needs it.

Before that, pods that already wait for it are annotated too (annotate_pods). It watches foreign changes and deletions, and undoes
them; the third within a minute is reported, and stays for a while. If the API server has no such policies, or the policy is
switched off, capacity does not wait for it; the log names the alternative, and in the first case the condition Advertised too.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

from nodedevice_api import names
from nodedevice_common.pacing import Backoff
from nodedevice_kube.api_errors import ApiError, NotFound, NotLeading, Unauthorized

from nodedevice_operator.contention import Contention
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.observability.events import WARNING, About, Event, EventReason
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.requiredplugins import policy
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator
from nodedevice_operator.requiredplugins.pending_pods import advertised
from nodedevice_operator.requiredplugins.policy import PolicyNames, Spec, Stored
from nodedevice_operator.requiredplugins.watch import PERMISSIONS, REMEDY, PolicyState, PolicyWatch, RequiredPluginsApi
from nodedevice_operator.workqueue import WorkQueue

log = logging.getLogger(__name__)

# Reasons of Advertised of a resource that is not on its Node because of the policy.
_NOT_GUARDED: Final = frozenset(
    {"", names.Reason.POLICY_PENDING, names.Reason.TOO_MANY_NAMES, names.Reason.NAME_EXCLUDED}
)
# A name that no NodeDevice has any more is found by polling: its end is not urgent.
_POLL_SECONDS: Final = 10.0
_SOON_SECONDS: Final = 0.25
_TOGETHER_SECONDS: Final = 0.25
_FIRST_DELAY_SECONDS: Final = 1.0
_LONGEST_DELAY_SECONDS: Final = 30.0
_MOST_LOGGED: Final = 5


@dataclass(eq=False)
class RequiredPluginsController:
    """`work` and `watch` run for ever; `unguarded` is asked before capacity is written. patterns: names that may be guarded."""

    api: RequiredPluginsApi
    annotator: PodAnnotator
    cache: Cache
    queue: WorkQueue
    metrics: Metrics
    fence: WriteFence
    recorder: EventRecorder
    _: KW_ONLY
    is_on: bool
    patterns: Collection[str] = ("*",)
    clock: Callable[[], float] = time.monotonic
    # by kind, the spec that was sent and what the API server made of it
    _accepted: dict[str, tuple[Spec, Spec]] = field(default_factory=dict, init=False)
    # by kind, what others have undone of it
    _contention: dict[str, Contention] = field(default_factory=dict, init=False)
    _selection: PolicyNames = field(default=PolicyNames(), init=False)
    # by name, since when it is in a whole policy (monotonic seconds)
    _since: dict[str, float] = field(default_factory=dict, init=False)
    _wake: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_failure_logged: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._watch = PolicyWatch(self.api, self._on_policy_change, self._enqueue_all, is_on=self.is_on)
        self._backoff = Backoff(_FIRST_DELAY_SECONDS, _LONGEST_DELAY_SECONDS)

    @property
    def lacks_policies(self) -> bool | None:
        """Whether the API server has no such policies; None if unknown yet."""
        return None if self._watch.state is PolicyState.UNKNOWN else self._watch.state is PolicyState.NOT_SERVED

    def unguarded(self, records: Iterable[NodeDeviceRecord]) -> Mapping[str, str]:
        """Resources of `records` whose pods the API server does not make wait (not yet, or not at all), and why."""
        if self._watch.state in (PolicyState.OFF, PolicyState.NOT_SERVED):
            return {}
        return {
            name: self._selection.left_out.get(name, names.Reason.POLICY_PENDING)
            for name in {record.resource for record in records if record.delivery == names.DELIVERY_NRI}
            if not self._is_in_force(name) or self.annotator.lacks(name)
        }

    def on_update(self, _: str, __: NodeDeviceRecord | None, now: NodeDeviceRecord | None) -> None:
        """A NodeDevice was created or changed: its resource may be new to the policy."""
        if now is None or now.resource in self._selection.left_out or now.resource in self._selection.names:
            return
        if policy.is_candidate(now, self.cache.nodes.get(now.node)) and self.cache.node_devices.counts(now):
            self._wake.set()

    def wake(self) -> None:
        self._wake.set()

    async def work(self) -> None:
        if self._watch.state is PolicyState.OFF:
            log.info(
                "required-plugins policy is off: pods wait for their node's agent only where the runtime requires it",
                extra=REMEDY,
            )
        while True:
            is_kept = self._watch.state in (PolicyState.UNKNOWN, PolicyState.KEPT)
            pause = await self._reconcile() if is_kept else _POLL_SECONDS
            # names in quick succession, as from a node that writes without end, share one reconcile
            await asyncio.sleep(min(pause, _TOGETHER_SECONDS))
            try:
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                continue
            self._wake.clear()

    async def watch(self, kind: str) -> None:
        await self._watch.watch(kind)

    async def _reconcile(self) -> float:
        """Reconciles the policy; returns in how many seconds to reconcile again."""
        if not self.cache.is_complete or not self._watch.is_complete:
            return _SOON_SECONDS  # nothing can be concluded before everything was read once
        await self._select()
        try:
            retry_in = await self._write()
            # the stored policy stays in force while a newer one cannot be written
            self._update_since()
            pause = min(retry_in, await self._annotate())
        except NotLeading:
            return _POLL_SECONDS
        left = [since + policy.SETTLE_SECONDS - self.clock() for since in self._since.values()]
        if waits := [seconds for seconds in left if seconds > 0.0]:
            return min(waits) + 0.01
        await self._enqueue_pending()
        return pause

    async def _select(self) -> None:
        before, nodes = self._selection, self.cache.nodes
        candidates: list[NodeDeviceRecord] = []
        async for step in self.cache.node_devices.counting_in_steps():
            candidates += [record for record in step if policy.is_candidate(record, nodes.get(record.node))]
        # after a start, the names of the stored policy
        known = before if before.names else PolicyNames(tuple(policy.guarded_by(self._stored())))
        self._selection = policy.select(candidates, self.patterns, known, self.clock())
        if self._selection.left_out and not before.left_out:
            some = sorted(self._selection.left_out)[:_MOST_LOGGED]
            log.warning("resource names are left out of the policy and not advertised", extra={"resource_names": some})

    async def _write(self) -> float:
        """Writes the selected names; returns in how many seconds to reconcile again. Raises NotLeading."""
        stored = self._stored()
        steps = policy.plan(self._selection.names, stored) if self.fence.is_open else {}
        # exactly these specs were written before
        repairs = [kind for kind, spec in steps.items() if kind in self._accepted and self._accepted[kind][0] == spec]
        paused = {kind: self._paused_seconds(kind) for kind in repairs}
        try:
            for kind, spec in steps.items():
                if paused.get(kind):
                    continue
                self.annotator.added(frozenset(self._selection.names) - policy.guarded_by(stored))
                if spec is None:
                    await self._delete(kind)
                else:
                    await self._apply(kind, spec)
                if kind in paused:
                    self._contention[kind] = self._contention[kind].repaired(self.clock())
        except NotLeading:
            raise
        except ApiError as error:
            return self._delay(error)
        self._backoff.reset()
        self._is_failure_logged = False
        return min([_POLL_SECONDS, *filter(None, paused.values())])

    def _paused_seconds(self, kind: str) -> float:
        """How long a foreign change of that object stays, as others keep repeating it."""
        now = self.clock()
        before = self._contention.get(kind, Contention())
        self._contention[kind] = after = before.undone(now)
        if after != before:
            seconds = round(after.wait_seconds(now))
            log.warning("conflict: another client keeps undoing the policy", extra={"kind": kind, "seconds": seconds})
            self.recorder.post(_contended(kind, seconds))
        return after.wait_seconds(now)

    async def _annotate(self) -> float:
        """Annotate pods that wait for a name that is in force now; return in how many seconds to retry. Raises NotLeading."""
        if not self.fence.is_open:
            return _POLL_SECONDS
        in_force = [name for name in self._since if self._is_in_force(name)]
        on_nodes: set[str] = set()
        async for step in self.cache.node_devices.counting_in_steps():
            on_nodes |= advertised(filter(is_real, step))
        retry_in = await self.annotator.annotate(in_force, frozenset(on_nodes))
        return _POLL_SECONDS if retry_in is None else retry_in

    async def _delete(self, kind: str) -> None:
        try:
            await self.api.delete(kind)
        except NotFound:
            log.debug("policy is deleted already", extra={"kind": kind})
        self._watch.specs[kind] = None
        log.info("policy deleted", extra={"kind": kind})

    async def _apply(self, kind: str, wanted: Spec) -> None:
        spec = await self.api.apply(kind, wanted)
        if spec != wanted:
            # server-side apply keeps what others have put into its lists
            spec = await self.api.replace(kind, wanted)
        self._accepted[kind] = (wanted, spec)
        self._watch.specs[kind] = spec
        log.info("policy written", extra={"kind": kind, "resource_names": len(self._selection.names)})

    def _on_policy_change(self) -> None:
        self._update_since()
        self._wake.set()

    def _update_since(self) -> None:
        """Since when each name is in a whole policy; one that is not whole protects no pod, however long it exists."""
        guarded = policy.guarded_by(self._stored())
        now = self.clock()
        self._since = {name: self._since.get(name, now) for name in self._selection.names if name in guarded}
        self.annotator.keep_only(self._since)
        self.metrics.policy_names.set(len(self._since))

    def _is_in_force(self, name: str) -> bool:
        since = self._since.get(name)
        return since is not None and self.clock() - since >= policy.SETTLE_SECONDS

    def _stored(self) -> Stored:
        """The stored specs. One unchanged since the operator's write counts as the sent one, so that the API's defaults stay."""
        sent = {kind: ours for kind, (ours, made) in self._accepted.items() if self._watch.specs.get(kind) == made}
        return {**self._watch.specs, **sent}

    def _delay(self, error: ApiError) -> float:
        # rejected credentials are logged by ApiHealth
        if not self._is_failure_logged and not isinstance(error, Unauthorized):
            self._is_failure_logged = True
            fields: dict[str, Any] = {"error": str(error), **PERMISSIONS}
            log.error("policy cannot be written; new resource names are not advertised until it is", extra=fields)
        return self._backoff.next()

    async def _enqueue_pending(self) -> None:
        nodes: dict[str, None] = {}
        async for step in self.cache.node_devices.counting_in_steps():
            nodes.update(dict.fromkeys(record.node for record in step if _is_pending(record)))
        for node in nodes:
            self.queue.enqueue(node)

    def _enqueue_all(self) -> None:
        """Enqueues all nodes: a condition of each NodeDevice shows whether the API server has such policies."""
        for node in self.cache.names_of_nodes():
            self.queue.enqueue(node)


def _is_pending(record: NodeDeviceRecord) -> bool:
    return record.delivery == names.DELIVERY_NRI and record.reason_of(names.Condition.ADVERTISED) in _NOT_GUARDED


def _contended(kind: str, seconds: int) -> Event:
    message = (
        f"another client changes or deletes it again and again; it is written again in {seconds} s, and until then pods may start "
        "without their node's agent: stop that client, or set requiredPlugins.enabled of the chart to false"
    )
    about = About(policy.API_VERSION, policy.KINDS[kind], "", policy.NAME, "")
    return Event(about, WARNING, EventReason.POLICY_CONFLICT, message)
