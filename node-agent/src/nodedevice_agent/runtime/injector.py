"""The runtime's handler where this agent injects devices: passes the runtime's events to the device manager, and waits briefly.

A container whose devices are ready is answered from memory. One whose allocation is in progress waits for that, by event and for
a moment only: the runtime creates no other container of the node meanwhile. Nothing is injected before its allocation is on disk,
because after a restart the device would be given out again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Container, Sequence

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.allocation.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.runtime import InjectionRefused, RunningContainer, Sandbox, Validator
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.runtime.connection_status import ConnectionStatus
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.injection import Decision, Grant, Injection, Refusal

log = logging.getLogger(__name__)

# Half of the second that a response may take; an allocation that takes longer is injected at the kubelet's next attempt.
WAIT_SECONDS = 0.5
# more than there are containers with devices on most nodes; beyond, a message is logged twice
_MAX_LOGGED = 256


class Injector:
    """A RuntimeHandler. on_change: called when status.condition has changed. of_kubelet: as in Injection."""

    def __init__(
        self, host: PluginHost, status: ConnectionStatus, on_change: Callable[[], None], of_kubelet: Container[str]
    ) -> None:
        self.events = ContainerEvents(host.manager)
        self._status = status
        self._injection = Injection(host.manager, of_kubelet)
        self._host = host
        self._on_change = on_change
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: set[asyncio.Future[None]] = set()
        # the last containers (pod UID, name) whose omitted edits were logged
        self._logged: deque[tuple[str, str]] = deque(maxlen=_MAX_LOGGED)
        host.when_done = self._wake
        self._set_timer()

    def close(self) -> None:
        """Set no timer any more, whatever the host does."""
        self._host.when_done = None
        if self._timer is not None:
            self._timer.cancel()

    # -- the connection -------------------------------------------------------------------------------------------------

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)
        self._changed(self._status.connected(name, version, validator))

    def validator_seen(self, validator: Validator) -> None:
        if self._status.validator_seen(validator):
            log.info("default validator of the runtime changed", extra={"is_on": validator is Validator.ON})
            self._on_change()

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)
        self.events.lost()
        self._changed(self._status.disconnected(reason, self._host.now()))

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        log.info("runtime synchronized", extra={"sandboxes": len(sandboxes), "containers": len(containers)})
        self._host.do(self.events.synchronized(sandboxes, containers, self._host.now()))

    # -- containers -----------------------------------------------------------------------------------------------------

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        decision = self._injection.decide(sandbox, container.name)
        if decision is None:
            return None
        with metrics.CREATE_CONTAINER_SECONDS.time():
            try:
                return await self._edits(sandbox, container, decision)
            except InjectionRefused:
                metrics.CONTAINERS_REFUSED.inc()
                raise

    async def _edits(self, sandbox: Sandbox, container: RunningContainer, decision: Decision) -> ContainerEdits | None:
        """Those of a grant that is on disk and current: nothing else runs between the check of its version and the return."""
        until = self._host.now() + WAIT_SECONDS
        while decision is not None:
            match decision:
                case Refusal():
                    if not decision.is_temporary or not await self._changes(until):
                        raise InjectionRefused(decision.message)
                case Grant():
                    await self._saved(until)
                    if self._injection.version(sandbox.uid, container.name) == decision.version:
                        self._created(sandbox, container, decision)
                        return decision.edits
            decision = self._injection.decide(sandbox, container.name)
        return None

    def _created(self, sandbox: Sandbox, container: RunningContainer, grant: Grant) -> None:
        effects = self.events.created(sandbox, container, grant, self._host.now())
        # mostly none, and then no deadline has changed either
        if effects:
            self._host.do(effects)
        if grant.omitted:
            self._log_omitted(sandbox, container, grant)

    def _log_omitted(self, sandbox: Sandbox, container: RunningContainer, grant: Grant) -> None:
        """Once for each container of a pod, however often it is created."""
        key = (sandbox.uid, container.name)
        if key in self._logged:
            return
        self._logged.append(key)
        extra = {
            "pod": f"{sandbox.namespace}/{sandbox.name}",
            "container": container.name,
            "resource_names": sorted({a.resource_name for a in grant.version.allocations}),
            "omitted": list(grant.omitted)[:16],
        }
        log.info("pod settings replace edits of a device plugin", extra=extra)

    async def _changes(self, until: float) -> bool:
        """Wait until the device manager has carried out effects. False after a timeout."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout_at(until):
                await waiter
        except TimeoutError:
            return False
        finally:
            self._waiters.discard(waiter)
        return True

    async def _saved(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._host.saved()
        except TimeoutError as exc:
            raise InjectionRefused(
                "the allocation is not on disk yet: is the disk of --state-dir slow or full?"
            ) from exc

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        found = self._host.manager.containers.find(sandbox.uid, container.id)
        if found is not None and found.fingerprints:
            return
        match self._injection.decide(sandbox, container.name):
            case Refusal() as refusal:
                raise InjectionRefused(refusal.message)
            case Grant():
                raise InjectionRefused(f"container {container.name} is being created without its devices")

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._host.do(self.events.started(sandbox, container))

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._host.do(self.events.ended(sandbox.uid, container.id, self._host.now()))

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        self._host.do(self.events.sandbox_removed(sandbox, self._host.now()))

    # -- internals ------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """The device manager has carried out effects."""
        self._set_timer()
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _changed(self, is_changed: bool) -> None:
        self._set_timer()
        if is_changed:
            self._on_change()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        times = (self._status.next_deadline(), self.events.next_deadline())
        deadline = min((at for at in times if at is not None), default=None)
        loop = asyncio.get_running_loop()
        self._timer = None if deadline is None else loop.call_at(deadline, self._tick)

    def _tick(self) -> None:
        now = self._host.now()
        for instance in self.events.never_started(now):
            extra = {"pod_uid": instance.pod_uid, "container": instance.container}
            log.info("container was never started and its pod is over; treating it as ended", extra=extra)
            self._host.do(self.events.ended(instance.pod_uid, instance.id, now))
        self._changed(self._status.tick(self._host.now()))


class NoopHandler:
    """A RuntimeHandler that injects nothing: for --runtime kubelet or none.

    The annotation that makes a pod require this plugin does not depend on its node, so the plugin has to be there on each.
    """

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        metrics.RUNTIME_CONNECTED.set(1)

    def validator_seen(self, validator: Validator) -> None:
        """No pod depends on it here."""

    def runtime_disconnected(self, reason: str) -> None:
        metrics.RUNTIME_CONNECTED.set(0)

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        """Nothing to do."""

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        return None

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Every container is valid."""

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Nothing to do."""

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        """Nothing to do."""

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        """Nothing to do."""
