"""Writes what core.node_marks asks for, and takes away what is there while it is switched off; without either it writes nothing.

Taints are one list to the API, with many writers: it is read anew and written with the version that was read. Labels are ours
one by one.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from nodedevice_operator.core.capacity import is_real
from nodedevice_operator.core.node_marks import label_changes, wanted
from nodedevice_operator.core.records import NO_MARKS, Marks, NodeRecord
from nodedevice_operator.edges.cache import Cache
from nodedevice_operator.edges.cluster import Cluster
from nodedevice_operator.errors import ApiError, Conflict, Forbidden, NotFound, NotLeading

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
# A role that is missing is told of in the log, and may be granted at any time.
_FORBIDDEN_SECONDS: Final = 300.0


class MarkWork:
    """The task."""

    def __init__(self, cache: Cache, cluster: Cluster, *, taint: bool, labels: bool, leads: Callable[[], bool]) -> None:
        self._cache = cache
        self._cluster = cluster
        self._taint = taint
        self._labels = labels
        self._leads = leads

    async def work(self) -> None:
        """Look at every Node, and so on, for ever."""
        while True:
            pause = _LOOK_SECONDS
            if self._leads() and self._cache.is_complete:
                try:
                    await self.look()
                except Forbidden:
                    log.warning(
                        "taint and labels of Nodes cannot be written, nor taken away",
                        extra={
                            "remedy": "set nodeTaint and nodeLabels of the chart to on, or to remove to be rid of them"
                        },
                    )
                    pause = _FORBIDDEN_SECONDS
                except NotLeading:
                    log.debug("Nodes are marked by whoever leads now")
            await asyncio.sleep(pause)

    async def look(self) -> None:
        """One look. Raises Forbidden and NotLeading; what else fails is tried again at the next."""
        for node in self._cache.nodes.values():
            want = self._wanted(node)
            if want == node.marks:
                continue
            try:
                await self._write(node, want)
            except (NotFound, Conflict):
                continue
            except (Forbidden, NotLeading):
                raise
            except ApiError as error:
                log.debug("Node not marked yet", extra={"node": node.name, "problem": error.problem})

    def _wanted(self, node: NodeRecord) -> Marks:
        if not (self._taint or self._labels):
            return NO_MARKS
        of_node = self._cache.node_devices.of_node(node.name)
        mine = (record for record in of_node if record.owner_uid == node.uid and is_real(record))
        return wanted(mine, taint=self._taint, labels=self._labels)

    async def _write(self, node: NodeRecord, want: Marks) -> None:
        changes = label_changes(node.marks, want)
        if changes:
            self._cache.nodes.put(await self._cluster.label_node(node.name, node.uid, changes))
        if want.is_tainted != node.marks.is_tainted:
            self._cache.nodes.put(await self._cluster.taint_node(node.name, node.uid, is_tainted=want.is_tainted))
        log.info("Node marked", extra={"node": node.name, "tainted": want.is_tainted, "labels": dict(want.labels)})
