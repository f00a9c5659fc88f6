"""Deletes NodeDevices whose device plugin has been gone for an hour: a plugin that registers ever new names leaves nothing behind.

Not those with allocations, waiting pods or cordons. A policy of the chart holds the operator to that, but for the
hour: expressions in the API server have no clock.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from nodedevice_api import names

from nodedevice_operator.errors import ApiError, Conflict, Denied, NotFound, NotLeading
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.client import OWN, Requests, path_segment
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.nodedevice import NodeDeviceRecord

log = logging.getLogger(__name__)

GONE_SECONDS: Final = 3600.0
_POLL_SECONDS: Final = 30.0


class NodeDevicesApi(Requests):
    """Deletes NodeDevices."""

    async def delete_node_device(self, record: NodeDeviceRecord) -> None:
        """Delete this version of the NodeDevice. Raises Conflict when it has changed since, and NotFound."""
        path = f"{OWN}/{names.NODE_DEVICES}/{path_segment(record.name)}"
        exactly = {"uid": record.uid, "resourceVersion": str(record.resource_version)}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": exactly}
        await self._client.request("DELETE", names.NODE_DEVICES, path, body=body)


@dataclass(eq=False, slots=True)
class GoneNodeDevices:
    """The task. clock: seconds since 1970, which agents' timestamps are compared with."""

    cache: Cache
    api: NodeDevicesApi
    fence: WriteFence
    clock: Callable[[], float] = time.time
    _is_failure_logged: bool = False

    async def work(self) -> None:
        """Delete what is due, wait, and so on, for ever."""
        while True:
            if self.fence.is_open and self.cache.is_complete:
                try:
                    await self.reconcile()
                    self._is_failure_logged = False
                except NotLeading:
                    log.debug("lost the lead; NodeDevices are left to the next leader")
                except ApiError as error:
                    self._log(error)
            await asyncio.sleep(_POLL_SECONDS)

    async def reconcile(self) -> None:
        """Check every NodeDevice once. Raises ApiError where one cannot be deleted."""
        latest = datetime.fromtimestamp(self.clock() - GONE_SECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for record in self.cache.node_devices.values():
            if record.is_unused and record.endpoint_since <= latest:
                try:
                    await self.api.delete_node_device(record)
                except (Conflict, Denied, NotFound):
                    continue  # it is another by now; the watch brings that
                extra = {"nodedevice": record.name, "since": record.endpoint_since}
                log.info("NodeDevice deleted: its device plugin is gone", extra=extra)

    def _log(self, error: ApiError) -> None:
        if not self._is_failure_logged:
            self._is_failure_logged = True
            log.warning("NodeDevice cannot be deleted; retrying", extra={"error": str(error)})
