"""Keeps the status of each NodeDeviceConfig: kopf's handlers pass the objects, the agents' Leases report how agents applied them.

All Leases are polled. Leases of agents that refuse a configuration are also watched, so that a refusal shows at once; the watch
skips the renewals of all others. All state is in memory. A failed write is retried after the next poll. Only the leader writes.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

import msgspec
from nodedevice_api import names
from nodedevice_common.pacing import Backoff
from nodedevice_common.tasks import apart
from nodedevice_kube.api_errors import ApiError, NotFound, NotLeading
from nodedevice_kube.paths import METADATA_LIST, segment
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nodedevice_operator.configs.status import STATES, Reports, config_status, read_reports, state_of, to_json
from nodedevice_operator.informers.store import Store
from nodedevice_operator.kube.client import now_text
from nodedevice_operator.kube.decode import decode
from nodedevice_operator.kube.lists import Kind
from nodedevice_operator.kube.requests import CONFIGS, Requests, at
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.meta import PartialObjectList
from nodedevice_operator.objects.refusing_lease import RefusingLease, refusing_lease
from nodedevice_operator.objects.unwatched import LeaseRecord, LeaseSchema

log = logging.getLogger(__name__)

# Changes that come together, of a fleet that has just got a configuration, are one write; while they go on, writes become rarer:
# each one goes to the watches of all agents, and so many watches a second, over time, get one.
_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 5.0
_WATCHES_PER_SECOND: Final = 1000.0
# kopf lists objects between two watches, and does not report the ones that were deleted then.
_CHECK_SECONDS: Final = 300.0


LEASES: Final = "leases"


def refusing_leases(namespace: str) -> Kind[RefusingLease]:
    base = f"/apis/coordination.k8s.io/v1/namespaces/{segment(namespace)}"
    return Kind(LEASES, base, LeaseSchema, refusing_lease, labels=names.CONFIG_REFUSED_LABEL)


class ConfigsApi(Requests):
    async def probe(self) -> None:
        """Lists one object. Raises NotFound if the CRD is missing, Forbidden without the right to list, other ApiErrors."""
        await self._client.request("GET", *at(CONFIGS), query={"limit": 1})

    async def uids(self) -> frozenset[str]:
        """UIDs of all objects, by a consistent list. Raises ApiError."""
        what, path = at(CONFIGS)

        def read(data: bytes) -> tuple[list[str], str]:
            page = decode("GET", what, data, PartialObjectList)
            return [item.metadata.uid for item in page.items or ()], page.metadata.continue_

        pages = self._read_pages(what, path, read, {}, METADATA_LIST)
        return frozenset([uid async for page in pages for uid in page])

    async def write_status(self, name: str, uid: str, status: Mapping[str, Any]) -> None:
        """Writes the status of exactly that object (uid). Raises ApiError."""
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.NODE_DEVICE_CONFIG,
            "metadata": {"name": name, "uid": uid},
            "status": status,
        }
        await self._apply(*at(CONFIGS, name, subresource="status"), body, force=True)


@dataclass(slots=True)
class _Known:
    uid: str
    generation: int
    status: dict[str, Any]


@dataclass(eq=False)
class ConfigController(Collector):
    """Runs in work(), and is a metrics collector for each scrape; the other methods report changes."""

    api: ConfigsApi
    fence: WriteFence
    refusing: Store[tuple[str, str], RefusingLease]
    _known: dict[str, _Known] = field(default_factory=dict, init=False)
    # by node with a report: the version of its Lease at the last poll, and the report
    _polled: dict[str, tuple[int, str]] = field(default_factory=dict, init=False)
    _by_node: dict[str, Reports] = field(default_factory=dict, init=False)
    _texts: dict[str, str] = field(default_factory=dict, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # until a poll has counted the agents
    _longest_pause: float = field(default=_LONGEST_PAUSE_SECONDS, init=False)

    def __post_init__(self) -> None:
        self.refusing.on_update(lambda node, before, now: self.refusals_changed(node))

    def seen(self, name: str, uid: str, generation: int, status: dict[str, Any]) -> None:
        found = _Known(uid, generation, status)
        # our own write comes back
        if self._known.get(name) != found:
            self._known[name] = found
            self._changed.set()

    def gone(self, name: str, uid: str) -> None:
        known = self._known.get(name)
        # another object may have that name by now
        if known is not None and known.uid == uid:
            del self._known[name]
            self._changed.set()

    def all_gone(self) -> None:
        """Forgets all configurations; kopf passes the existing ones again."""
        self._known.clear()

    def leases_are(self, leases: Mapping[str, LeaseRecord]) -> None:
        self._polled = {node: (lease.version, lease.configs) for node, lease in leases.items() if lease.configs}
        seconds = len(leases) / _WATCHES_PER_SECOND
        self._longest_pause = min(max(_FIRST_PAUSE_SECONDS, seconds), _LONGEST_PAUSE_SECONDS)
        # also for what could not be written
        self._changed.set()

    def refusals_changed(self, node: str) -> None:
        """The watch has brought another report of that node's agent, or the end of its refusals."""
        self._changed.set()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Counts configurations by state, on every replica, from their stored status."""
        family = GaugeMetricFamily(
            "nodedevice_operator_configs",
            "NodeDeviceConfigs by state; conflict: another one has a resource that it names; unused: it selects no node.",
            labels=("state",),
        )
        counts = Counter(state_of(each.generation, each.status) for each in list(self._known.values()))
        for state in STATES:
            family.add_metric((state,), counts[state])
        yield family

    async def work(self) -> NoReturn:
        clock, pauses, pause = (
            asyncio.get_running_loop().time,
            Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS),
            0.0,
        )
        checked_at = clock()
        while True:
            quiet_since = clock()
            await self._changed.wait()
            if clock() - quiet_since > pause:
                pauses.reset()
            pause = min(pauses.next(), self._longest_pause)
            await asyncio.sleep(pause)
            self._changed.clear()
            if clock() - checked_at >= _CHECK_SECONDS:
                checked_at = clock()
                with apart("config status"):
                    await self._forget_deleted()
            if self.fence.is_open:
                with apart("config status"):
                    self._read()
                for name in sorted(self._known):
                    with apart("config status", config=name):
                        await self._reconcile(name)

    async def _forget_deleted(self) -> None:
        before = dict(self._known)
        try:
            existing = await self.api.uids()
        except ApiError as error:
            log.debug("NodeDeviceConfigs not listed", extra={"error": str(error)})
            return
        for name, known in before.items():
            if known.uid not in existing:
                self.gone(name, known.uid)

    def _read(self) -> None:
        """Keeps each node's newer report, from the poll or from the watch."""
        reports = dict(self._polled)
        for lease in self.refusing.values():
            watched = lease.resource_version, lease.configs
            reports[lease.node] = max(watched, reports.get(lease.node, watched))
        texts = {node: text for node, (_, text) in reports.items()}
        if texts != self._texts:
            # a fleet has few different ones
            read = {text: read_reports(text) for text in set(texts.values())}
            self._texts, self._by_node = texts, {node: read[text] for node, text in texts.items()}

    async def _reconcile(self, name: str) -> None:
        known = self._known.get(name)
        if known is None:
            return
        wanted = config_status(name, known.generation, self._by_node)
        status = to_json(wanted, known.status, now_text())
        if status == known.status:
            return
        try:
            await self.api.write_status(name, known.uid, status)
        except NotFound:
            # deleted while nothing watched
            self._known.pop(name, None)
            return
        except NotLeading:
            return
        except ApiError as error:
            log.warning("status of a configuration not written; retrying", extra={"config": name, "error": str(error)})
            return
        known.status = msgspec.to_builtins(status)
