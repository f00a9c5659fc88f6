"""The controller of the required-plugins policy on a bench: the two objects in memory, no pods, and a clock that is set."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest
from nodedevice_api import names
from nodedevice_kube.api_errors import ApiError, Forbidden
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord, StoredCondition
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.requiredplugins.annotate_pods import PodAnnotator, UnboundPodsApi
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.requiredplugins.pending_pods import AnnotationFailure
from nodedevice_operator.requiredplugins.policy import BINDINGS, POLICIES, SETTLE_SECONDS, Spec
from nodedevice_operator.requiredplugins.watch import RequiredPluginsApi
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.operator.collaborators import RecordingRecorder, open_fence, running
from tests.fakes.operator.node_status import NodeStatusModel
from tests.fakes.operator.operator_model import node_device
from tests.fakes.polling import until

RECORD = node_device(delivery="nri")


def advertised_as(status: str, reason: str, node: str = "node-a") -> NodeDeviceRecord:
    conditions = {names.Condition.ADVERTISED: StoredCondition(status, reason, "", "then", 1)}
    return node_device(node=node, delivery="nri", conditions=conditions)


ADVERTISED = advertised_as("True", names.Reason.ADVERTISED)


class Objects(RequiredPluginsApi):
    """The two objects in memory; `refuses` reports no to every write, `hides` is what every read fails with.

    hides_all: what the question fails with whether there are any.
    """

    def __init__(
        self,
        *,
        is_served: bool = True,
        refuses: bool = False,
        hides: ApiError | None = None,
        hides_all: ApiError | None = None,
    ) -> None:
        self.is_served, self.refuses, self.hides, self.hides_all = is_served, refuses, hides, hides_all
        self.reads = self.writes = 0
        # what the API server adds to each spec
        self.default: Spec = {}
        self.specs: dict[str, Spec] = {}
        self._changes: dict[str, asyncio.Queue[bool]] = {kind: asyncio.Queue() for kind in (POLICIES, BINDINGS)}

    async def served(self) -> frozenset[str]:
        if self.hides_all is not None:
            raise self.hides_all
        return frozenset({POLICIES, BINDINGS}) if self.is_served else frozenset({"validatingadmissionpolicies"})

    async def read(self, kind: str) -> tuple[Spec | None, str]:
        self.reads += 1
        if self.hides is not None:
            raise self.hides
        return self.specs.get(kind), "1"

    async def apply(self, kind: str, spec: Spec) -> Spec:
        if self.refuses:
            raise Forbidden("patch", kind, "an admission policy says no", 403)
        self.writes += 1
        self.specs[kind] = {**spec, **self.default}
        return self.specs[kind]

    async def replace(self, kind: str, spec: Spec) -> Spec:
        return await self.apply(kind, spec)

    async def follow(self, kind: str, version: str) -> AsyncIterator[Spec | None]:
        while await self._changes[kind].get():
            yield self.specs.get(kind)

    def vanish(self, kind: str) -> None:
        """Somebody deletes it, and the watch shows that."""
        self.specs.pop(kind, None)
        self._changes[kind].put_nowait(True)

    def cut(self) -> None:
        """Ends the watches that are open: they are opened again after a read."""
        for changes in self._changes.values():
            changes.put_nowait(False)


class Annotator(PodAnnotator):
    """Finds no pods; every check at names that are due waits until it `may_end`."""

    def __init__(self, *, is_on: bool) -> None:
        super().__init__(UnboundPodsApi.__new__(UnboundPodsApi), is_on=is_on)
        self.checked_for: list[frozenset[str]] = []
        self.may_end = asyncio.Event()

    async def _annotate(self, resources: frozenset[str]) -> list[AnnotationFailure]:
        self.checked_for.append(resources)
        await self.may_end.wait()
        return []


class Bench:
    def __init__(
        self,
        objects: Objects,
        *,
        is_on: bool = True,
        leads: bool = True,
        marks: bool = False,
        records: tuple[NodeDeviceRecord, ...] = (RECORD,),
    ) -> None:
        self.now = 1000.0
        cache = Cache()
        cache.nodes.replace([NodeStatusModel(record.node).record() for record in records], 1)
        cache.pod_devices.replace([], 1)
        cache.node_devices.replace(records, 1)
        self.objects, self.enqueued = objects, set[str]()
        queue = WorkQueue(Metrics())
        # only recorded: no worker takes from this queue
        queue.enqueue = self.enqueued.add  # type: ignore[method-assign, assignment]
        fence = open_fence()
        if not leads:
            fence.close()
        self.waiting = Annotator(is_on=marks)
        self.recorder = RecordingRecorder()
        self.keeper = RequiredPluginsController(
            objects, self.waiting, cache, queue, Metrics(), fence, self.recorder, is_on=is_on, clock=lambda: self.now
        )

    @property
    def unguarded(self) -> frozenset[str]:
        return frozenset(self.keeper.unguarded([RECORD]))

    async def until_written(self) -> None:
        """Wait until both objects are there."""
        await until(lambda: self.objects.specs.keys() == {POLICIES, BINDINGS})

    def settle(self) -> None:
        """Let the policy be in force."""
        self.now += SETTLE_SECONDS
        self.keeper.wake()

    async def until_in_force(self) -> None:
        """Wait until nothing waits for the policy any more."""

        def is_in_force() -> bool:
            self.settle()
            return self.unguarded == frozenset()

        await until(is_in_force)

    async def __aenter__(self) -> None:
        self._running = running(self.keeper.work(), self.keeper.watch(POLICIES), self.keeper.watch(BINDINGS))
        await self._running.__aenter__()

    async def __aexit__(self, *_: object) -> None:
        await self._running.__aexit__(None, None, None)


def reported(caplog: pytest.LogCaptureFixture, begin: str) -> list[logging.LogRecord]:
    """What was logged that begins so."""
    return [record for record in caplog.records if record.message.startswith(begin)]
