"""What the kubelet's pod resources say of the node's pods, kept up to date with as few questions as possible.

All pods by List, at least every half a minute; those that changed since by Get, which leaves out the same containers, and unlike
List frees nothing in the kubelet. Get is served since 1.34, for good since 1.36. A kubelet before refuses it with the status of a
pod that is not there, or does not know it.
Source: kubelet pkg/kubelet/apis/podresources server_v1.go and pkg/features @ 1.37.
"""

import logging
import math
from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

from nodedevice_agent.devicemanager.allocation.allocations import Allocation
from nodedevice_agent.devicemanager.pods import Pod
from nodedevice_agent.kubelet.attribution import PodName, PodResourcesRow, changed_pods
from nodedevice_agent.kubelet.pod_resources import (
    PodResourcesRefused,
    PodResourcesUnavailable,
    get_pods,
    list_pod_resources,
)
from nodedevice_agent.lib.filesystem import FileIdentity, file_identity

log = logging.getLogger(__name__)

LIST_SECONDS: Final = 30.0
# more are listed with all others: the kubelet answers ten calls at once, to everybody together
_MOST_BY_GET: Final = 4


class PodRows:
    """read() after each change of the kubelet's checkpoint or of a pod; pod_ended() for each pod that has."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._rows: dict[PodName, tuple[PodResourcesRow, ...]] = {}
        # the checkpoint's entries to which they belong
        self._entries: tuple[Allocation, ...] | None = None
        self._ended: set[PodName] = set()
        self._listed_at = -math.inf
        # False: next time all are listed
        self._is_complete = False
        # of a kubelet that does not answer for single pods
        self._without_get: FileIdentity | None = None
        self._refusal = ""

    def list_due(self) -> float:
        """When all are to be listed, whatever happens until then."""
        return self._listed_at + LIST_SECONDS

    def pod_ended(self, pod: Pod) -> None:
        """The end of a mirror pod is not that of its static pod."""
        if pod.config_hash:
            self.forget()
        else:
            self._ended.add((pod.namespace, pod.name))

    def forget(self) -> None:
        self._is_complete = False

    async def read(
        self, entries: tuple[Allocation, ...] | None, pods: Mapping[str, Pod], now: float
    ) -> tuple[PodResourcesRow, ...]:
        """entries: of the checkpoint, None where it cannot be read. pods: the API's. Raises PodResourcesUnavailable."""
        ended, self._ended = self._ended, set()
        asked = self._to_ask(entries, pods, ended) if self._is_complete and now < self.list_due() else None
        # forget() may be called meanwhile
        self._is_complete = True
        try:
            found = await self._get(asked) if asked is not None else None
            if found is not None:
                self._rows = {name: rows for name, rows in self._rows.items() if name not in ended} | found
            else:
                await self._list(asked or frozenset())
                self._listed_at = now
        except PodResourcesUnavailable:
            self._is_complete = False
            raise
        self._entries = entries
        return tuple(chain.from_iterable(self._rows.values()))

    # -- internals --------------------------------------------------------------------------------------------------------

    def _to_ask(
        self, entries: tuple[Allocation, ...] | None, pods: Mapping[str, Pod], ended: Collection[PodName]
    ) -> frozenset[PodName] | None:
        """Pods of which the rows may be others. None: all."""
        if entries is None or self._entries is None:
            return None
        changed = changed_pods(self._entries, entries, pods)
        if changed is None:
            return None
        # one of the same name may have come since
        asked = changed | {(pod.namespace, pod.name) for pod in pods.values() if (pod.namespace, pod.name) in ended}
        if len(asked) > _MOST_BY_GET or (asked and self._without_get == file_identity(self._socket)):
            return None
        return asked

    async def _get(self, asked: Collection[PodName]) -> dict[PodName, tuple[PodResourcesRow, ...]] | None:
        """None where the kubelet refuses to say."""
        try:
            return await get_pods(self._socket, sorted(asked)) if asked else {}
        except PodResourcesRefused as exc:
            self._refusal = str(exc)
            return None

    async def _list(self, refused: Collection[PodName]) -> None:
        """refused: pods that Get did not answer for. If List has one of them, it is Get that is missing, and not the pod."""
        rows: dict[PodName, tuple[PodResourcesRow, ...]] = {}
        for row in await list_pod_resources(self._socket):
            name = row.namespace, row.name
            rows[name] = (*rows.get(name, ()), row)
        self._rows = rows
        if not rows.keys().isdisjoint(refused):
            self._without_get = file_identity(self._socket)
            message = "the kubelet does not answer for single pods; all are listed at each change"
            log.info(message, extra={"socket": str(self._socket), "error": self._refusal})
