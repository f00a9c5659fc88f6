"""Deletes NodeDevices whose device plugin has been gone for an hour, so that a plugin with ever new names leaves nothing behind.

NodeDevices that their agent has ended are deleted once they are withdrawn from their Node: earlier the deletion would seem manual,
and the Node would keep the number for a moment. NodeDevices with allocations, waiting pods or cordons stay. A policy of the chart
enforces all but the hour: expressions in the API server have no clock.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from nodedevice_api import names
from nodedevice_common.log_once import LogOnce
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, Forbidden, NotFound, NotLeading

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.requests import NODEDEVICES, Requests, at
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

log = logging.getLogger(__name__)

GONE_SECONDS: Final = 3600.0
# What an agent has ended, where the kubelet counts it: it does so for five minutes more, and the agent would show that.
BY_KUBELET_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 30.0
# NodeDevices between two yields to the loop: few are deleted, and otherwise nothing is awaited.
_STEP: Final = 1000
_CANNOT_DELETE: Final = "NodeDevice cannot be deleted; retrying"
_NO_SLICES: Final = "its DRA driver has no ResourceSlice of the node any more"
_WHY: Final = {
    names.Reason.NOT_CONFIGURED: "nothing configures it any more",
    names.Reason.PLACE_TAKEN: "another resource name has its place",
}


class NodeDevicesApi(Requests):
    async def delete_node_device(self, record: NodeDeviceRecord) -> None:
        """Delete this version of the NodeDevice. Raises Conflict when it has changed since, and NotFound."""
        version = str(record.resource_version)
        await self._delete(*at(NODEDEVICES, record.name), uid=record.uid, resourceVersion=version)


@dataclass(eq=False, slots=True)
class GoneNodeDevices:
    """The task. clock: seconds since 1970, which agents' timestamps are compared with."""

    cache: Cache
    api: NodeDevicesApi
    fence: WriteFence
    clock: Callable[[], float] = time.time
    _log_once: LogOnce = field(default_factory=lambda: LogOnce(log))
    # names of NodeDevices that were over after a reconcile of their node
    _over: dict[str, None] = field(default_factory=dict)
    _found: asyncio.Event = field(default_factory=asyncio.Event)

    def reconciled(self, node: str) -> None:
        """Deletes ended NodeDevices of a reconciled node now, without waiting for the next round."""
        over = [record.name for record in self.cache.node_devices.of_node(node) if record.is_over]
        if over:
            self._over.update(dict.fromkeys(over))
            self._found.set()

    async def work(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if await self._try(self.cache.node_devices.values()):
                self._log_once.report(_CANNOT_DELETE, "")
            next_round = loop.time() + _POLL_SECONDS
            while loop.time() < next_round:
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(next_round):
                        await self._found.wait()
                await self._try(self._take())

    def _take(self) -> list[NodeDeviceRecord]:
        self._found.clear()
        found = [self.cache.node_devices.get(name) for name in self._over]
        self._over.clear()
        return [record for record in found if record is not None]

    async def _try(self, records: Iterable[NodeDeviceRecord]) -> bool:
        """Whether all that was due could be deleted."""
        if not (self.fence.is_open and self.cache.is_complete):
            return False
        try:
            await self._delete(records)
        except NotLeading:
            log.debug("lost the lead; NodeDevices are left to the next leader")
            return False
        except ApiError as error:
            self._log_once.report(_CANNOT_DELETE, str(error))
            return False
        return True

    async def reconcile(self) -> None:
        """Check every NodeDevice once. Raises ApiError where one cannot be deleted."""
        await self._delete(self.cache.node_devices.values())

    async def _delete(self, records: Iterable[NodeDeviceRecord]) -> None:
        """Deletes the due ones, each by itself. Raises ApiError if one could not be deleted."""
        problem: ApiError | None = None
        now = self.clock()
        hour, by_kubelet = _text(now - GONE_SECONDS), _text(now - BY_KUBELET_SECONDS)
        for number, record in enumerate(records, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            is_of_kubelet = record.ended and record.delivery == names.DELIVERY_KUBELET
            latest = by_kubelet if is_of_kubelet else hour
            if record.is_over or (record.is_unused and record.endpoint_since <= latest):
                try:
                    await self.api.delete_node_device(record)
                except (Conflict, NotFound):
                    continue  # it is another by now; the watch brings that
                except ApiError as error:
                    if error.concerns_all_requests or (isinstance(error, Forbidden) and not isinstance(error, Denied)):
                        raise
                    # such as a webhook's denial: it is about this one
                    problem = problem or error
                    continue
                is_dra = record.served_by == names.SERVED_BY_DRA
                why = _WHY.get(record.ended, _NO_SLICES if is_dra else "its device plugin is gone")
                extra = {"nodedevice": record.name, "since": record.endpoint_since, "reason": why}
                log.info("unused NodeDevice deleted", extra=extra)
        if problem is not None:
            raise problem


def _text(seconds: float) -> str:
    """As the API has times."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
