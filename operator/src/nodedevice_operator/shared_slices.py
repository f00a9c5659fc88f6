"""Counts the slices of DRA drivers that are not of one node, by driver: devices behind a network, of a rack, or of all nodes.

No agent sees these, as a watch by node does not bring them, and no NodeDevice shows them. A list and a watch with an empty node
name bring only them. Only who leads has them, and only where the API server has the kind, which is asked once in five minutes.
Source: the selectable field spec.nodeName of ResourceSlices, k8s.io/kubernetes pkg/registry/resource/resourceslice/strategy.go.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import Final, NoReturn

from nodedevice_kube.api_errors import ApiError, Forbidden, NotFound, Unauthorized
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodedevice_operator.informers.informer import Informer
from nodedevice_operator.informers.store import Store, Stores
from nodedevice_operator.kube.client import Client
from nodedevice_operator.kube.health import SLICES
from nodedevice_operator.kube.lists import Cluster, Kind
from nodedevice_operator.kube.requests import Requests
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.shared_slice import SharedSlice, SharedSliceSchema, by_driver, shared_slice

log = logging.getLogger(__name__)

_ROOT: Final = "/apis/resource.k8s.io/v1"
# `spec.nodeName=` is that of slices without a node
SHARED_SLICES: Final[Kind[SharedSlice]] = Kind(
    SLICES, _ROOT, SharedSliceSchema, shared_slice, selector="spec.nodeName="
)

# Some 500 bytes each: bounds the memory.
MOST_SLICES: Final = 10_000
_DISCOVERY_SECONDS: Final = 300.0
_POLL_SECONDS: Final = 2.0


class SlicesApi(Requests):
    async def is_served(self) -> bool:
        """Whether the API server has the kind, and allows listing it. Raises ApiError if that is unknown."""
        try:
            # everybody may read that: an API server that forbids it has just started, and has not read the roles yet
            if SLICES not in await self._served(_ROOT):
                return False
        except NotFound:
            return False
        # a role of before this release; a list of the informer would be tried, and refused, four times a minute
        query: dict[str, str | int] = {"limit": 1, **SHARED_SLICES.query}
        try:
            await self._client.request("GET", SLICES, SHARED_SLICES.path, query=query)
        except Unauthorized:
            # no credentials for anything, for now
            raise
        except (NotFound, Forbidden):
            return False
        return True


class SliceStore(Store[str, SharedSlice]):
    """No more than MOST_SLICES; what comes afterwards is not counted."""

    def empty(self) -> "SliceStore":
        return SliceStore()

    def put(self, record: SharedSlice) -> bool:
        is_full = len(self.by_key) >= MOST_SLICES and record.key not in self.by_key
        return False if is_full else super().put(record)


class SharedSlices(Collector):
    """work() for ever; a collector of metrics besides, called at every scrape."""

    def __init__(self, client: Client, fence: WriteFence) -> None:
        self._client = client
        self._api = SlicesApi(client)
        self._fence = fence
        # replaced whole, as another thread reads it
        self.store = SliceStore()
        self._watch: asyncio.Task[None] | None = None

    async def work(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        ask_at = loop.time()
        try:
            while True:
                if not self._fence.is_open:
                    await self._end()
                    # who leads next asks at once
                    ask_at = loop.time()
                elif loop.time() >= ask_at:
                    ask_at = loop.time() + await self._ask()
                if self._watch is not None and self._watch.done():
                    self._watch.result()
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await self._end()

    async def _ask(self) -> float:
        """Begin or end the watch; in how many seconds to ask again."""
        try:
            is_served = await self._api.is_served()
        except ApiError as error:
            # which kube.health logs; a watch that is open goes on
            log.debug("kinds of DRA are not known; asking again", extra={"error": error.problem})
            return _POLL_SECONDS
        if not is_served:
            await self._end()
        elif self._watch is None:
            self._begin()
        return _DISCOVERY_SECONDS

    def _begin(self) -> None:
        stores = Stores({SLICES: self.store}, ("ResourceSlices that are not of one node",))
        informer = Informer(SHARED_SLICES, stores, Cluster(self._client), self._client)
        self._watch = asyncio.create_task(informer.work(), name="watch-shared-slices")

    async def _end(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            self.store = SliceStore()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        slices = GaugeMetricFamily(
            "nodedevice_operator_shared_slices",
            "ResourceSlices that are not of one node, which no NodeDevice shows, by DRA driver; of the operator that leads.",
            labels=("driver",),
        )
        devices = GaugeMetricFamily(
            "nodedevice_operator_shared_slice_devices", "Devices in these, by DRA driver.", labels=("driver",)
        )
        for driver, count in by_driver(self.store.values()).items():
            slices.add_metric((driver,), count.slices)
            devices.add_metric((driver,), count.devices)
        yield from (slices, devices)
