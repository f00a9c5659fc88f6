"""The delivery `nri`: the agent allocates devices itself and injects them as an NRI plugin of the container runtime.

Responds from memory if the container's devices are ready. Otherwise waits briefly for the allocation in progress, because the
runtime creates no other container of the node during that time. Injects nothing before the allocation is on disk: after a restart
the device could be allocated again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TypeVar

from nodedevice_api.names import DELIVERY_KUBELET
from nodedevice_common.tasks import retried

from nodedevice_agent import metrics
from nodedevice_agent.delivery.contract import Delivery
from nodedevice_agent.devicemanager.container_edits import ContainerEdits
from nodedevice_agent.devicemanager.pods import NO_SETTINGS
from nodedevice_agent.devicemanager.runtime import (
    ContainerInstance,
    CreationSettings,
    InjectionRefused,
    RunningContainer,
    RuntimeDevice,
    RuntimeHandler,
    Sandbox,
    Validator,
)
from nodedevice_agent.devicemanager.snapshot import Snapshot
from nodedevice_agent.deviceplugin.host import PluginHost
from nodedevice_agent.kubelet.reader import KubeletReader
from nodedevice_agent.lib.deviceplugin_server import values
from nodedevice_agent.lib.vital import vital
from nodedevice_agent.nri.connector import NriPlugin
from nodedevice_agent.nri.releases import takes_cdi
from nodedevice_agent.runtime.connection_status import ConnectionStatus, Injectable, injectable
from nodedevice_agent.runtime.container_events import ContainerEvents
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_agent.runtime.device_ownership import DeviceOwnership
from nodedevice_agent.runtime.hooked_containers import HookedContainers
from nodedevice_agent.runtime.injection import Decision, Grant, Injection, Refusal
from nodedevice_agent.runtime.kubelet_checkpoint import KubeletCheckpoint
from nodedevice_agent.runtime.kubelet_pods import KubeletPods
from nodedevice_agent.runtime.kubelet_takeover import KubeletTakeover
from nodedevice_agent.settings import AgentSettings

log = logging.getLogger(__name__)

# Half of the second that a response may take; an allocation that takes longer is injected at the kubelet's next attempt.
WAIT_SECONDS = 0.5
# most nodes have fewer containers with devices; on others a message may be logged twice
_MAX_LOGGED = 256

K = TypeVar("K", str, tuple[str, str])


class NriBackend(Delivery, RuntimeHandler):
    """on_change: called when each resource's condition Injectable may have changed."""

    def __init__(
        self,
        settings: AgentSettings,
        host: PluginHost,
        reader: KubeletReader,
        on_change: Callable[[], None],
        injector: values.Injector | None = None,
    ) -> None:
        self.events = ContainerEvents(host.manager)
        self._manager = host.manager
        self._host = host
        self._on_change = on_change
        self._kubelet = KubeletCheckpoint(reader)
        reader.subscribe(self._kubelet)
        self._kubelet_pods = KubeletPods(host, self._kubelet, on_change)
        reader.subscribe(KubeletTakeover(host.manager, reader.directory.pod_resources))
        self._hooked = HookedContainers(host.manager, self._kubelet, settings.namespace, on_change)
        self.configured = self._hooked.configured
        self._injection = Injection(
            host.manager, self._hooked.hooks, self._kubelet, lambda: self._kubelet.problem, self._kubelet_pods.has_made
        )
        self._injector = injector or values.Injector()
        self._status = ConnectionStatus(host.now(), settings.runtime_grace_seconds)
        self._plugin = NriPlugin(self, Path(settings.nri_socket), settings.nri_index)
        self._numbers = DeviceNumbers(host.manager, on_change)
        self._ownership = DeviceOwnership(settings.device_ownership, settings.runtime_config)
        self._grace: asyncio.TimerHandle | None = None
        self._synchronized = asyncio.Event()
        # logged containers by resource, as pod UID and name; as container ID. Empty sets are removed
        self._not_injected: dict[str, set[tuple[str, str]]] = {}
        self._using_released: dict[str, set[str]] = {}
        # the last containers (pod UID, name) whose omitted edits were logged
        self._omitted: deque[tuple[str, str]] = deque(maxlen=_MAX_LOGGED)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Connect to the runtime. Allocations of the checkpoint can be injected before plugins reconnect."""
        tasks.create_task(vital("nri", self.run))

    async def run(self) -> None:
        self._changed(False)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(vital("ends of containers", self._watch_doubtful))
                tasks.create_task(retried("pods of the kubelet", self._kubelet_pods.leave_all))
                tasks.create_task(retried("device numbers", self._numbers.run))
                await self._plugin.run()
        finally:
            if self._grace is not None:
                self._grace.cancel()

    @property
    def is_settled(self) -> bool:
        """Whether the state of the connection is known; until then the last published status stays."""
        return self._status.condition is not None

    def resource_changed(self, resource_name: str) -> None:
        self._numbers.is_due.set()
        if self._manager.allocator.pending:
            self._kubelet_pods.resource_changed(resource_name)

    def not_injected(self, pod_uid: str, container: str, resource_name: str) -> bool:
        """Whether the container runs without the resource; False until the kubelet's allocations to the pod are known."""
        is_asking = self._kubelet_pods.is_asking and self._kubelet_pods.waits(pod_uid)
        return not is_asking and self.events.not_injected(pod_uid, container, resource_name)

    def resource_forgotten(self, resource_name: str) -> None:
        for known in (self._not_injected, self._using_released):
            known.pop(resource_name, None)

    def injectable(self, now: Snapshot) -> Injectable | None:
        """Return the condition. Logs once each container that runs without its devices, or uses released ones."""
        name, condition = now.resource_name, self._status.condition
        without = {(h.allocation.pod_uid, h.allocation.container) for h in now.held if h.not_injected}
        without |= {(p.pending.pod_uid, p.pending.container) for p in now.pending if p.not_injected}
        for pod_uid, container in _unlogged(self._not_injected, name, without):
            extra = {"pod_uid": pod_uid, "container": container, "resource_name": name}
            log.warning("container runs without its devices; restart its pod", extra=extra)
        metrics.CONTAINERS_WITHOUT.labels(name).set(len(without))
        using_released = self.events.using_released(name) if self._manager.containers.by_pod else ()
        self._log_using_released(name, using_released)
        changed = self._numbers.of(name) if self._numbers.found else ()
        note = self._hooked.note(name) if self._hooked.hooks.all else ""
        return None if condition is None else injectable(condition, now, using_released, changed, note)

    def _log_using_released(self, resource_name: str, found: Iterable[ContainerInstance]) -> None:
        by_id = {instance.id: instance for instance in found}
        for container_id in _unlogged(self._using_released, resource_name, set(by_id)):
            extra = {**_fields(by_id[container_id]), "resource_name": resource_name}
            log.error("container uses devices that were released; stop it", extra=extra)

    def runtime_connected(self, name: str, version: str, validator: Validator) -> None:
        self._injector.takes_cdi = takes_cdi(name, version)
        self._ownership.connected(name)
        self._changed(self._status.connected(name, version, validator))

    def validator_seen(self, validator: Validator) -> None:
        if self._status.validator_seen(validator):
            log.info("default validator of the runtime changed", extra={"is_on": validator is Validator.ON})
            self._on_change()

    def runtime_disconnected(self, reason: str) -> None:
        self._manager.containers.lost()
        self._changed(self._status.disconnected(reason, self._host.now()))

    def synchronized(self, sandboxes: Sequence[Sandbox], containers: Sequence[RunningContainer]) -> None:
        log.info("runtime synchronized", extra={"sandboxes": len(sandboxes), "containers": len(containers)})
        now = self._host.now()
        self.events.synchronized(sandboxes, containers, now)
        self._host.settle()
        for found in self._manager.containers.doubtful.values():
            if found.unlisted_since == now:
                log.warning("runtime does not list a container that it ran; keeping its devices", extra=_fields(found))
        self._synchronized.set()

    def reads_variable(self, entry: str) -> bool:
        return self._hooked.reads(entry)

    async def create_container(self, sandbox: Sandbox, container: RunningContainer) -> ContainerEdits | None:
        now = self._host.now()
        self.events.sandbox_shown(sandbox, now)
        if self._manager.containers.doubtful:
            self.events.creating(sandbox.uid, container.name)
        self._host.settle()
        if self._asks_kubelet(sandbox, container):
            await self._kubelet.refresh()
            self._kubelet_pods.leave(sandbox.uid)
        decision = self._injection.decide(sandbox, container.name, container.env)
        if decision is None:
            return self._hooked.edits(sandbox, container, None)
        with metrics.CREATE_CONTAINER_SECONDS.time():
            try:
                return await self._edits(sandbox, container, decision)
            except InjectionRefused:
                metrics.CONTAINERS_REFUSED.inc()
                if self._manager.book.unanswered:
                    self._manager.allocate_once.creation_refused(sandbox.uid, container.name)
                    self._host.settle()
                raise

    async def _edits(self, sandbox: Sandbox, container: RunningContainer, decision: Decision) -> ContainerEdits | None:
        """Return the edits of a grant that is on disk and current. Never awaits between version check and return."""
        until = self._host.now() + WAIT_SECONDS
        while decision is not None:
            match decision:
                case Refusal():
                    if not decision.is_temporary or not await self._changes(until):
                        raise InjectionRefused(decision.message)
                case Grant():
                    await self._saved(sandbox.uid, until)
                    if self._injection.version(sandbox.uid, container.name) == decision.version:
                        edits = self._hooked.edits(sandbox, container, decision.edits)
                        self._created(sandbox, container, decision)
                        return edits
            decision = self._injection.decide(sandbox, container.name, container.env)
        return self._hooked.edits(sandbox, container, None)

    def _created(self, sandbox: Sandbox, container: RunningContainer, grant: Grant) -> None:
        self.events.created(sandbox, container, grant)
        self._host.settle()
        for creation in grant.overruled:
            metrics.CREATION_HOOKS.labels(creation.outcome).inc()
        key = (sandbox.uid, container.name)
        # logged once for each container of a pod, however often it is created
        if not (grant.omitted or grant.overruled) or key in self._omitted:
            return
        self._omitted.append(key)
        extra = {
            "pod": f"{sandbox.namespace}/{sandbox.name}",
            "container": container.name,
            "resource_names": sorted({a.resource_name for a in grant.version.allocations}),
        }
        if grant.omitted:
            omitted = list(grant.omitted)[:16]
            log.info("pod settings replace edits of a device plugin", extra={**extra, "omitted": omitted})
        for creation in grant.overruled:
            log.info(creation.event, extra={**extra, "overruled": list(creation.names)[:16]})

    async def _changes(self, until: float | None) -> bool:
        """Wait until effects were carried out; False after a timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until):
                return await self._host.effects_done.wait()
        return False

    async def _saved(self, pod_uid: str, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._host.saved(pod_uid)
        except TimeoutError as exc:
            raise InjectionRefused(
                "the allocation is not on disk yet: is the disk of --state-dir slow or full?"
            ) from exc

    def check_files(self, sandbox: Sandbox, container: str, numbers: Collection[str]) -> None:
        other = self._manager.other_holders.of(sandbox.uid, numbers) if self._manager.are_devices_compared else None
        if other is None:
            return
        pod = self._manager.pod(other.pod_uid)
        holder = f"pod {pod.namespace}/{pod.name}" if pod is not None else f"the pod with UID {other.pod_uid}"
        raise InjectionRefused(
            f"container {container} would get {other.device_id} of {other.resource_name}, which {holder} holds: its device file is "
            "allocated a second time; remove the file from one of the two resources, or delete one of the pods"
        )

    async def creation_settings(self, sandbox: Sandbox, container: RunningContainer) -> CreationSettings:
        pod = self._manager.pod(sandbox.uid)
        own = NO_SETTINGS if pod is None else pod.container_settings(container.name)
        owner = await self._ownership.owner(own, container.user)
        return CreationSettings(owner, None if pod is None else own.references)

    def creation_adjusted(
        self, sandbox: Sandbox, container: RunningContainer, devices: tuple[RuntimeDevice, ...]
    ) -> None:
        self.events.adjusted(sandbox, container.id, devices)
        self._host.settle()

    def creation_refused(self, sandbox: Sandbox, container: RunningContainer) -> None:
        metrics.CONTAINERS_REFUSED.inc()
        self.container_ended(sandbox, container)

    def validate(self, sandbox: Sandbox, container: RunningContainer) -> None:
        found = self._manager.containers.find(sandbox.uid, container.id)
        if found is not None and found.fingerprints:
            return
        self._kubelet_pods.leave(sandbox.uid)
        match self._injection.decide(sandbox, container.name):
            case Refusal() as refusal:
                raise InjectionRefused(refusal.message)
            case Grant():
                raise InjectionRefused(f"container {container.name} is being created without its devices")

    def container_started(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self.events.started(sandbox, container)
        self._host.settle()
        self._numbers.is_due.set()

    def container_ended(self, sandbox: Sandbox, container: RunningContainer) -> None:
        self._numbers.is_due.set()
        self.events.ended(sandbox.uid, container.id)
        self._host.settle()

    def sandbox_removed(self, sandbox: Sandbox) -> None:
        self._hooked.sandbox_removed(sandbox.uid)
        self.events.sandbox_removed(sandbox)
        self._host.settle()

    def _asks_kubelet(self, sandbox: Sandbox, container: RunningContainer) -> bool:
        """Whether the response depends on the kubelet's allocations. Rarely true: each pod of the node may change its file."""
        held = self._manager.book.of_container(sandbox.uid, container.name)
        return (
            (bool(self._manager.allocator.pending) and self._kubelet_pods.waits(sandbox.uid))
            or any(a.delivery == DELIVERY_KUBELET for a in held)
            or self._injection.asks_kubelet(sandbox, container.name)
            or self._hooked.asks_kubelet(sandbox, container)
        )

    def _changed(self, is_changed: bool) -> None:
        """Handle a changed connection or grace period. is_changed: whether the condition has changed."""
        if self._grace is not None:
            self._grace.cancel()
        ends_at, loop = self._status.grace_ends_at, asyncio.get_running_loop()
        self._grace = None if ends_at is None else loop.call_at(ends_at, self._grace_ended)
        if is_changed:
            self._on_change()

    def _grace_ended(self) -> None:
        self._changed(self._status.tick(self._host.now()))

    async def _watch_doubtful(self) -> NoReturn:
        """Treat containers as ended that never started, or that the runtime no longer lists, after their deadline."""
        while True:
            await self._synchronized.wait()
            self._synchronized.clear()
            while self._manager.containers.doubtful:
                # the end of a pod sets the deadline
                await self._changes(self.events.next_deadline())
                self._end_overdue()

    def _end_overdue(self) -> None:
        now = self._host.now()
        for instance in self.events.overdue(now):
            extra = _fields(instance)
            if instance.unlisted_since is None:
                log.info("container was never started and its pod is over; treating it as ended", extra=extra)
            else:
                event = "runtime has not listed a container for long and its pod is over; treating it as ended"
                log.warning(event, extra=extra)
            self.events.ended(instance.pod_uid, instance.id)
            self._host.settle()


def _fields(instance: ContainerInstance) -> dict[str, str]:
    """Return the log fields of a container."""
    return {"container_id": instance.id, "container": instance.container, "pod_uid": instance.pod_uid}


def _unlogged(logged: dict[str, set[K]], resource_name: str, found: set[K]) -> list[K]:
    """Return the entries of the resource that were not logged yet, sorted, and mark all as logged."""
    before = logged.pop(resource_name, ())
    if found:
        logged[resource_name] = found
    return sorted(found.difference(before))
