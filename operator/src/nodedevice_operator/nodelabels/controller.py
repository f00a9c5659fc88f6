"""Writes what core.node_marks asks for, and takes away what is there while it is switched off; without either it writes nothing.

Taints are one list to the API, with many writers: it is read anew and written with the version that was read. Labels are ours
one by one. A Node that a policy protects is left as it is for a while, and holds up no other.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from nodedevice_operator.errors import ApiError, Conflict, Denied, Forbidden, NotFound, NotLeading, Unauthorized
from nodedevice_operator.informers.store import Cache
from nodedevice_operator.nodelabels.api import NodeLabelsApi
from nodedevice_operator.nodelabels.desired import label_changes, wanted
from nodedevice_operator.objects.node import NO_MARKS, Marks, NodeRecord
from nodedevice_operator.objects.nodedevice import is_real

log = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 2.0
# A role that is missing is told of in the log, and may be granted at any time; so may what a policy refuses for one Node.
_FORBIDDEN_SECONDS: Final = 300.0


class MarkWork:
    """The task."""

    def __init__(
        self,
        cache: Cache,
        api: NodeLabelsApi,
        *,
        taint: bool,
        labels: bool,
        leads: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._api = api
        self._taint = taint
        self._labels = labels
        self._leads = leads
        self._clock = clock
        # by uid of a Node: what a policy refused to have written, and until when it is not asked for again
        self._denied: dict[str, tuple[Marks, float]] = {}

    async def work(self) -> None:
        """Look at every Node, and so on, for ever."""
        while True:
            pause = _LOOK_SECONDS
            if self._leads() and self._cache.is_complete:
                try:
                    await self.look()
                except Unauthorized:
                    log.debug("Nodes are not marked, as the API server does not know us")
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
        """One look. Raises Forbidden where a role is missing, and NotLeading; what else fails is tried again at the next."""
        nodes = self._cache.nodes.values()
        uids = {node.uid for node in nodes}
        self._denied = {uid: denied for uid, denied in self._denied.items() if uid in uids}
        told: list[tuple[NodeRecord, Denied]] = []
        for node in nodes:
            want = self._wanted(node)
            if want == node.marks or self._is_to_wait(node, want):
                continue
            try:
                await self._write(node, want)
            except (NotFound, Conflict):
                continue
            except Denied as error:
                if node.uid not in self._denied:
                    told.append((node, error))
                self._denied[node.uid] = (want, self._clock() + _FORBIDDEN_SECONDS)
            except (Forbidden, NotLeading):
                raise
            except ApiError as error:
                log.debug("Node not marked yet", extra={"node": node.name, "problem": error.problem})
        if told:
            _tell_denied(told)

    def _is_to_wait(self, node: NodeRecord, want: Marks) -> bool:
        refused, until = self._denied.get(node.uid, (None, 0.0))
        return self._cache.nodes.is_left_alone(node.name) or (refused == want and self._clock() < until)

    def _wanted(self, node: NodeRecord) -> Marks:
        if not (self._taint or self._labels):
            return NO_MARKS
        of_node = self._cache.node_devices.of_node(node.name)
        mine = (record for record in of_node if record.owner_uid == node.uid and is_real(record))
        return wanted(mine, taint=self._taint, labels=self._labels)

    async def _write(self, node: NodeRecord, want: Marks) -> None:
        changes = label_changes(node.marks, want)
        if changes:
            self._cache.nodes.put(await self._api.label_node(node, changes))
        if want.is_tainted != node.marks.is_tainted:
            self._cache.nodes.put(await self._api.taint_node(node.name, node.uid, is_tainted=want.is_tainted))
        self._denied.pop(node.uid, None)
        log.info("Node marked", extra={"node": node.name, "tainted": want.is_tainted, "labels": dict(want.labels)})


def _tell_denied(denied: list[tuple[NodeRecord, Denied]]) -> None:
    """One line, however many Nodes a policy protects."""
    node, error = denied[0]
    fields = {
        "node": node.name,
        "nodes": len(denied),
        "problem": error.problem,
        "remedy": "have the policy allow the operator's taint and labels, or leave it: these Nodes stay without them",
    }
    log.warning("a policy refuses taint or labels of Nodes", extra=fields)
