"""The runtime's handler where this agent gives devices: brings the core what the runtime says, and waits where that helps.

A container that has what it needs is answered from memory. One whose allocation is under way waits for that, by event and for a
moment only: the runtime creates no other container of the node meanwhile. Nothing is given before it is on disk, because a
restart would give it out again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Sequence

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox, Validator
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.runtime.connection_status import RuntimeLink
from nodedevice_agent.runtime.container_events import RuntimeEvents
from nodedevice_agent.runtime.injection import Given, Injection, Refusal

log = logging.getLogger(__name__)

# Half of the second that an answer may take; what takes longer comes with the kubelet's next attempt.
WAIT_SECONDS = 0.5
# more than there are containers with devices on most nodes; beyond, something is told twice
_MOST_TOLD = 256


class Injector:
    """A RuntimeHandler. said: called when what link.said says has changed. of_kubelet: as in Injection."""

    def __init__(
        self, host: PluginHost, link: RuntimeLink, said: Callable[[], None], of_kubelet: Container[str]
    ) -> None:
        self.link = link
        self.events = RuntimeEvents(host.manager)
        self._injection = Injection(host.manager, of_kubelet)
        self._host = host
        self._said = said
        self._timer: asyncio.TimerHandle | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        # pods and containers of which it is told that theirs is left out, the last of them
        self._told: deque[tuple[str, str]] = deque(maxlen=_MOST_TOLD)
        host.when_done = self._wake
        self._set_timer()

    # -- the connection -------------------------------------------------------------------------------------------------

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)
        self._tell(self.link.connected(name, version, validator))

    def validator_seen(self, validator: Validator) -> None:
        if self.link.validator_seen(validator):
            log.info("default validator of the runtime", extra={"is_on": validator is Validator.ON})
            self._said()

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)
        self.events.lost()
        self._tell(self.link.disconnected(reason, self._host.now()))

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        log.info("runtime synchronized", extra={"sandboxes": len(sandboxes), "containers": len(containers)})
        self._host.do(self.events.synchronized(sandboxes, containers, self._host.now()))

    def close(self) -> None:
        """No timer of it is set any more, whatever the host does."""
        self._host.when_done = None
        if self._timer is not None:
            self._timer.cancel()

    # -- containers -----------------------------------------------------------------------------------------------------

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        if self._injection.answer(sandbox, container.name) is None:
            return None
        with metrics.CREATE_CONTAINER_SECONDS.time():
            try:
                given = await self._given(sandbox, container)
            except InjectionRefused:
                metrics.CONTAINERS_REFUSED.inc()
                raise
        return given.edits if given is not None else None

    async def _given(self, sandbox: Sandbox, container: RunningContainer) -> Given | None:
        """The answer, once it stands and is on disk. From the last look at it to its return nothing else happens."""
        until = self._host.now() + WAIT_SECONDS
        saved: Given | None = None
        while True:
            match self._injection.answer(sandbox, container.name):
                case None:
                    return None
                case Refusal() as refusal:
                    if not refusal.may_pass_soon or not await self._changes(until):
                        raise InjectionRefused(refusal.message)
                case Given() as given if saved is not None and given.allocations == saved.allocations:
                    self._host.do(self.events.created(sandbox, container, given, self._host.now()))
                    self._tell_left_out(sandbox, container, given)
                    return given
                case Given() as saved:
                    await self._is_on_disk(until)

    def _tell_left_out(self, sandbox: Sandbox, container: RunningContainer, given: Given) -> None:
        """Once for each container of a pod, however often it is created."""
        who = (sandbox.uid, container.name)
        if not given.left_out or who in self._told:
            return
        self._told.append(who)
        extra = {
            "pod": f"{sandbox.namespace}/{sandbox.name}",
            "container": container.name,
            "resource_names": sorted({a.resource_name for a in given.allocations}),
            "left_out": list(given.left_out)[:16],
        }
        log.info("a device plugin's answer is left out where the pod has its own", extra=extra)

    async def _changes(self, until: float) -> bool:
        """Wait until the device manager has done something. False when the time is over."""
        woken = asyncio.get_running_loop().create_future()
        self._waiting.add(woken)
        try:
            async with asyncio.timeout_at(until):
                await woken
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(woken)
        return True

    async def _is_on_disk(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._host.saved()
        except TimeoutError as exc:
            raise InjectionRefused("the allocation is not on disk yet: is that of --state-dir slow or full?") from exc

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        found = self._host.manager.containers.find(sandbox.uid, container.id)
        if found is not None and found.marks:
            return
        match self._injection.answer(sandbox, container.name):
            case Refusal() as refusal:
                raise InjectionRefused(refusal.message)
            case Given():
                raise InjectionRefused(f"container {container.name} is being created without its devices")

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._host.do(self.events.started(sandbox, container))

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._host.do(self.events.ended(sandbox.uid, container.id, self._host.now()))

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        self._host.do(self.events.sandbox_removed(sandbox, self._host.now()))

    # -- how it is done -------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Something has happened."""
        self._set_timer()
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)

    def _tell(self, changes: bool) -> None:
        self._set_timer()
        if changes:
            self._said()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        times = (self.link.next_deadline(), self.events.next_deadline())
        deadline = min((at for at in times if at is not None), default=None)
        loop = asyncio.get_running_loop()
        self._timer = None if deadline is None else loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        now = self._host.now()
        for alive in self.events.never_started(now):
            extra = {"pod_uid": alive.pod_uid, "container": alive.container}
            log.info("a container that was never started counts as ended, as its pod is over", extra=extra)
            self._host.do(self.events.ended(alive.pod_uid, alive.id, now))
        self._tell(self.link.tick(self._host.now()))


class Bystander:
    """A RuntimeHandler where somebody else gives devices, or nobody: there for pods that are held until such a plugin is.

    The annotation that holds a pod does not say on which node it will run.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)

    def validator_seen(self, validator: Validator) -> None:
        """It holds back nobody whom we could help."""

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        """Nothing to do."""

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        return None

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Whatever it is, it may be."""

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Nothing to do."""

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Nothing to do."""

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """Nothing to do."""
