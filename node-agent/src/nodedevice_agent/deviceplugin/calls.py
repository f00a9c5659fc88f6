"""Makes the device manager's calls to device plugins: each in a task of its own, with its result as an event."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

from msgspec import Struct, structs

from nodedevice_agent import metrics
from nodedevice_agent.devicemanager.container_edits import AllocateResponse
from nodedevice_agent.devicemanager.effects import CallAllocate, CallPreferred, CallPreStart
from nodedevice_agent.devicemanager.manager import DeviceManager
from nodedevice_agent.deviceplugin.codec import allocate_details
from nodedevice_agent.deviceplugin.connection import PluginConnection
from nodedevice_agent.deviceplugin.holdings import HoldingsSync
from nodedevice_agent.errors import PluginFailed

log = logging.getLogger(__name__)


class PluginCalls(Struct, eq=False):
    """connections: open connections by endpoint. holdings: by resource name. settle: called after each event of the manager.

    saved: waits until the allocations of a pod are on disk. wall_clock: Unix seconds.
    """

    manager: DeviceManager
    connections: Mapping[int, PluginConnection]
    holdings: Mapping[str, HoldingsSync]
    settle: Callable[[], None]
    now: Callable[[], float]
    saved: Callable[[str], Awaitable[None]]
    wall_clock: Callable[[], float] = time.time

    async def preferred(self, effect: CallPreferred) -> None:
        preferred: tuple[str, ...] = ()
        try:
            with self._calling(effect, "GetPreferredAllocation") as connection:
                preferred = await connection.preferred(effect.available, effect.must_include, effect.size)
        except PluginFailed as exc:
            extra: dict[str, object] = {"resource_name": effect.resource_name, "error": str(exc)}
            log.warning("GetPreferredAllocation failed; ignoring it", extra=extra)
        invalid = sorted(set(preferred) - set(effect.available))
        if invalid or len(preferred) > effect.size:
            counts = {"returned": len(preferred), "requested": effect.size}
            extra = {"resource_name": effect.resource_name, "device_ids": invalid[:3], **counts}
            log.warning("GetPreferredAllocation returned invalid device IDs; ignoring them", extra=extra)
        self.manager.preferred(effect.ticket, preferred[: effect.size], self.now())
        self.settle()

    async def allocate(self, effect: CallAllocate) -> None:
        if effect.recorded_for:
            await self.saved(effect.recorded_for)
            if not self.manager.allocator.is_awaited(effect.ticket):
                # the pod has ended meanwhile, and the plugin must not take the call for another pod's
                return
        try:
            response = await self._allocate(effect)
        except PluginFailed as exc:
            metrics.ALLOCATE_FAILED.labels(effect.resource_name).inc()
            extra: dict[str, object] = {"resource_name": effect.resource_name, "error": str(exc)}
            log.error(
                "Allocate failed; not retrying" if effect.recorded_for else "Allocate failed; retrying", extra=extra
            )
            self.manager.allocate_failed(effect.ticket, str(exc), self.now())
            self.settle()
            return
        log.info("allocated", extra={"resource_name": effect.resource_name, "device_ids": list(effect.device_ids)[:16]})
        dated = structs.replace(response, received_at=int(self.wall_clock()))
        self.manager.allocated(effect.ticket, dated, self.now())
        self.settle()

    async def _allocate(self, effect: CallAllocate) -> AllocateResponse:
        """Raises PluginFailed."""
        holdings = self.holdings.get(effect.resource_name)
        async with nullcontext() if holdings is None else holdings.allocating(effect.pod_uid, effect.container):
            timer = metrics.ALLOCATE_SECONDS.labels(effect.resource_name).time()
            with self._calling(effect, "Allocate") as connection, timer:
                details = allocate_details(effect, self.manager.pod(effect.pod_uid))
                return await connection.allocate(effect.device_ids, details)

    async def pre_start(self, effect: CallPreStart) -> None:
        extra = {"resource_name": effect.resource_name, "container": effect.container}
        try:
            timer = metrics.PRE_START_SECONDS.labels(effect.resource_name).time()
            with self._calling(effect, "PreStartContainer") as connection, timer:
                await connection.pre_start(effect.device_ids)
        except PluginFailed as exc:
            metrics.PRE_START_FAILED.labels(effect.resource_name).inc()
            log.error("PreStartContainer failed; retrying", extra={**extra, "error": str(exc)})
            self.manager.pre_start_failed(effect.ticket, str(exc), self.now())
            self.settle()
            return
        log.info("devices prepared", extra={**extra, "device_ids": list(effect.device_ids)[:16]})
        self.manager.pre_started(effect.ticket)
        self.settle()

    def _connection(self, endpoint: int | None, resource_name: str, call: str) -> PluginConnection:
        connection = None if endpoint is None else self.connections.get(endpoint)
        if connection is None:
            raise PluginFailed(resource_name, call, "it is no longer connected")
        return connection

    def newest(self, resource_name: str, call: str) -> PluginConnection:
        """The connection in use for this resource. Raises PluginFailed without one."""
        resource = self.manager.resources.get(resource_name)
        return self._connection(None if resource is None else resource.newest.endpoint, resource_name, call)

    @contextmanager
    def _calling(self, effect: CallPreferred | CallAllocate | CallPreStart, call: str) -> Iterator[PluginConnection]:
        """The connection for a call to one plugin. Every exception becomes a PluginFailed and affects no other plugin."""
        name = effect.resource_name
        try:
            yield self._connection(effect.endpoint, name, call)
        except PluginFailed:
            raise
        except Exception as exc:
            log.exception("call to a device plugin failed, which is a bug", extra={"resource_name": name})
            raise PluginFailed(name, call, f"a bug in this agent ({type(exc).__name__}); see its log") from exc
