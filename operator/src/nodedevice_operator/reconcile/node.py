"""One look at one node: gather what is known, decide, and carry it out, capacity first, as pods wait for it.

Nothing is done before every list is complete, that of the agents' Leases among them: server-side apply takes off a Node what
an apply leaves out, and a PodDevice that nothing known calls for would be deleted.

What is refused holds up nothing else: a Node that cannot be written has pods and conditions all the same, and a NodeDevice that
takes no conditions has neighbours. The first failure is raised in the end, so that all of it is tried again.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from nodedevice_api import names
from nodedevice_api.names import Reason

from nodedevice_operator.agents.monitor import LeaseWatch
from nodedevice_operator.capacity.contradictions import contradictions
from nodedevice_operator.capacity.decide import Verdict
from nodedevice_operator.capacity.reconciler import CapacityMemory, CapacityWork, Outcome
from nodedevice_operator.conditions import conditions
from nodedevice_operator.conditions.agent_events import agent_events
from nodedevice_operator.conditions.api import ConditionsApi
from nodedevice_operator.errors import ApiError, NotFound, NotLeading, Unreachable
from nodedevice_operator.events.transitions import WARNING, Event, EventReason, about_node_device
from nodedevice_operator.informers.intake import OnNews
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.api import now_text
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, is_real
from nodedevice_operator.poddevices.reconciler import PodDeviceWork, PodHistory

# A Node and its NodeDevices come by two watches: for this long one may be ahead of the other.
_NODE_MISSING_GRACE_SECONDS: Final = 5.0

# Answers that are about no object, 401 about who we are: other writes would fare no better, and each would make it worse.
_FOR_ALL: Final = frozenset({401, 429, 502, 503, 504})

_NO_NODE: Final = Verdict(False, Reason.NODE_MISSING)
_NOT_THE_ONE: Final = Verdict(False, Reason.WRONG_NAME)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Memory:
    """What is remembered of a node between two looks."""

    capacity: CapacityMemory = field(default_factory=CapacityMemory)
    pods: PodHistory = field(default_factory=PodHistory)
    ownerless_since: float | None = None
    contradictions: dict[str, tuple[str, ...]] = field(default_factory=dict)


class NodeWork:
    """The look that the reconciler takes; call it with a node's name."""

    def __init__(
        self,
        cache: Cache,
        api: ConditionsApi,
        leases: LeaseWatch,
        capacity: CapacityWork,
        pod_devices: PodDeviceWork,
        on_news: OnNews,
        is_crowded: Callable[[], bool],
        touch_later: Callable[[str, float], None],
        post: Callable[[Event], None],
        clock: Callable[[], float] = time.monotonic,
        lacks_policies: Callable[[], bool | None] = lambda: False,
    ) -> None:
        self._lacks_policies = lacks_policies
        self._on_news = on_news
        self._is_crowded = is_crowded
        self._touch_later = touch_later
        self._post = post
        self._clock = clock
        self._cache = cache
        self._api = api
        self._leases = leases
        self._capacity = capacity
        self._pod_devices = pod_devices
        self._memories: dict[str, Memory] = {}

    def forget(self) -> None:
        """Begin as after a restart: another operator has written meanwhile, and what it did is in the API."""
        self._memories.clear()

    async def look(self, name: str) -> float | None:
        """Bring one node to what its NodeDevices say; in how many seconds to look again, if so.

        Raises ApiError when something could not be done; what was done until then stays, and what is due at a time is asked for.
        """
        if not self._cache.is_complete or not self._leases.has_looked:
            return None
        if not self._cache.knows(name):
            self._memories.pop(name, None)
            return None
        memory = self._memories.setdefault(name, Memory())
        agent = self._leases.state(name)
        failures: list[ApiError] = []
        try:
            outcome = await self._capacity.look(name, memory.capacity, agent)
        except ApiError as error:
            if _is_for_all(error):
                raise
            failures.append(error)
            outcome = self._capacity.refused(name, memory.capacity, agent, error)
        if outcome.has_written and self._is_crowded():
            # others wait for their capacity, thousands of them after a cold start: the rest comes when all have theirs
            return 0.0
        self._tell_contradictions(name, memory)
        try:
            await self._pod_devices.look(name, memory.pods)
        except ApiError as error:
            failures.append(error)  # a pod that is refused says nothing against the conditions
        waits = [self._ownerless_wait(name, memory)]
        failures += await self._write_conditions(name, memory, outcome)
        if outcome.look_again_at is not None:
            waits.append(outcome.look_again_at - self._clock())
        wait = min((seconds for seconds in waits if seconds is not None), default=None)
        if failures:
            # what failed is tried again less and less often; what is due then is not to wait for it
            if wait is not None:
                self._touch_later(name, wait)
            raise failures[0]
        return wait

    def _ownerless_wait(self, name: str, memory: Memory) -> float | None:
        """Note since when an object is without its Node; in how many seconds it is looked at again."""
        records = filter(is_real, self._cache.node_devices.of_node(name))
        if all(self._is_owned(record) for record in records):
            memory.ownerless_since = None
            return None
        if memory.ownerless_since is None:
            memory.ownerless_since = self._clock()
        return None if self._is_over(memory.ownerless_since) else _NODE_MISSING_GRACE_SECONDS

    async def _write_conditions(self, name: str, memory: Memory, capacity: Outcome) -> list[ApiError]:
        """Write the conditions that are not stored yet; what went wrong, record by record."""
        failures: list[ApiError] = []
        for record in self._cache.node_devices.of_node(name):
            if not self._is_to_be_told(record, memory, capacity):
                continue
            try:
                await self._write(record, self._verdict(record, capacity), capacity.refusal)
            except ApiError as error:
                failures.append(error)
                if _is_for_all(error):
                    break
        return failures

    def _is_to_be_told(self, record: NodeDeviceRecord, memory: Memory, capacity: Outcome) -> bool:
        if not is_real(record):
            return True
        if not self._is_owned(record):
            return memory.ownerless_since is not None and self._is_over(memory.ownerless_since)
        if not record.has_status and not record.edited_by and not conditions.can_stay(record):
            return False  # its agent has just made it, and speaks next
        if record.resource not in capacity.verdicts:
            return False
        return capacity.verdicts[record.resource] is not None or conditions.can_stay(record)

    def _verdict(self, record: NodeDeviceRecord, capacity: Outcome) -> Verdict | None:
        if not is_real(record):
            return _NOT_THE_ONE
        return capacity.verdicts[record.resource] if self._is_owned(record) else _NO_NODE

    def _tell_contradictions(self, name: str, memory: Memory) -> None:
        """Say, once, what in a NodeDevice does not fit together."""
        found: dict[str, tuple[str, ...]] = {}
        for record in filter(is_real, self._cache.node_devices.of_node(name)):
            sentences = contradictions(record)
            if sentences:
                found[record.name] = sentences
            if sentences and memory.contradictions.get(record.name) != sentences:
                problem = "; ".join(sentences)
                log.warning("NodeDevice contradicts itself", extra={"object": record.name, "problem": problem})
                message = f"{record.resource} on {record.node}: {problem}"
                about = about_node_device(record)
                self._post(Event(about, WARNING, EventReason.CONTRADICTION, message, is_standing=True))
        memory.contradictions = found

    def _is_owned(self, record: NodeDeviceRecord) -> bool:
        node = self._cache.nodes.get(record.node)
        return node is not None and node.uid == record.owner_uid

    def _is_over(self, since: float) -> bool:
        return self._clock() - since >= _NODE_MISSING_GRACE_SECONDS

    async def _write(self, record: NodeDeviceRecord, verdict: Verdict | None, refusal: str) -> None:
        answers = conditions.answers(
            record, verdict, self._leases.state_for(record), lacks_policies=self._lacks_policies(), refusal=refusal
        )
        values = conditions.changed(record, answers, now_text())
        if not values:
            return
        try:
            written = await self._api.apply_conditions(record, values)
        except NotFound:
            return  # gone, and the watch will say so
        for event in agent_events(record, answers):
            self._post(event)
        self._take_in(written)

    def _take_in(self, written: NodeDeviceRecord) -> None:
        """Take in the answer to a write. It may hold news of the agent's, whose own event will be too old by then."""
        held = self._cache.node_devices.get(written.key)
        if not self._cache.node_devices.put(written):
            return
        if held is None or _of_agent(held) != _of_agent(written):
            self._on_news(held, written)


def _is_for_all(error: ApiError) -> bool:
    return isinstance(error, Unreachable | NotLeading) or error.status in _FOR_ALL


def _of_agent(record: NodeDeviceRecord) -> NodeDeviceRecord:
    theirs = {kind: value for kind, value in record.conditions.items() if kind not in names.OPERATOR_CONDITIONS}
    return replace(record, conditions=theirs)
