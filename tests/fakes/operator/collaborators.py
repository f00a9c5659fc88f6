"""Collaborators of the operator's features that record what they are given, or decide nothing."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from nodedevice_api.names import ConfigReason
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord
from nodedevice_operator.observability.events import OF_CONDITIONS, ROUTINE, Event, EventReason
from nodedevice_operator.observability.metrics import Metrics
from nodedevice_operator.observability.recorder import EventRecorder
from nodedevice_operator.requiredplugins.controller import RequiredPluginsController
from nodedevice_operator.workqueue import WorkQueue

from tests.fakes.background import background

# Of all Events that there are; docs/troubleshooting.md has each.
REASONS = OF_CONDITIONS | {
    value for kind in (EventReason, ConfigReason) for name, value in vars(kind).items() if not name.startswith("_")
}


class Clock:
    """Stands still until it is set."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """All of these at work, until the block ends."""
    async with AsyncExitStack() as stack:
        for each in work:
            await stack.enter_async_context(background(each))
        yield


def open_fence() -> WriteFence:
    """The fence of an operator that leads."""
    fence = WriteFence()
    fence.open_for_good()
    return fence


class RecordingRecorder(EventRecorder):
    """Keeps the Events that are posted; those of ordinary operation apart, as they come with nearly every write."""

    def __init__(self) -> None:
        self.posted: list[Event] = []
        self.routine: list[Event] = []

    def post(self, event: Event) -> None:
        assert event.reason in REASONS, "on no page"
        (self.routine if event.reason in ROUTINE else self.posted).append(event)

    def reasons(self) -> list[str]:
        return [event.reason for event in self.posted]


class RecordingQueue(WorkQueue):
    """Keeps the nodes that are enqueued; `crowd` sets whether other nodes wait, `changed` whether the node has changed again."""

    def __init__(self) -> None:
        super().__init__(Metrics())
        self.crowd = False
        self.changed = False
        self.later: list[float] = []
        self._enqueued: asyncio.Queue[str] = asyncio.Queue()

    @property
    def is_crowded(self) -> bool:
        return self.crowd

    def has_changed_since(self, node: str) -> bool:
        return self.changed

    def enqueue(self, node: str) -> None:
        self._enqueued.put_nowait(node)

    def enqueue_after(self, node: str, seconds: float) -> None:
        self.later.append(seconds)

    async def next(self) -> str:
        """The next node that was enqueued."""
        async with asyncio.timeout(60):
            return await self._enqueued.get()

    @property
    def is_empty(self) -> bool:
        return self._enqueued.empty()


class NoRequiredPlugins(RequiredPluginsController):
    """An operator for which no resource waits for the policy."""

    def __init__(self) -> None:
        pass

    @property
    def lacks_policies(self) -> bool | None:
        return False

    def unguarded(self, records: Iterable[NodeDeviceRecord]) -> Mapping[str, str]:
        return {}
