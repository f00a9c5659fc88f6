"""Writes the desired taint and labels of Nodes, and removes the ones that are switched off.

The API has one list of taints for many writers: it is read again and written with the version that was read. The operator owns
single labels. A Node that an admission policy protects is left alone for a while, and does not delay others.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import msgspec
from nodedevice_common.tasks import apart
from nodedevice_kube.api_errors import ApiError, Conflict, Denied, Forbidden, NotFound, NotLeading, Unauthorized
from nodedevice_kube.paths import NODES

from nodedevice_operator.informers.store import Cache
from nodedevice_operator.kube.decode import decode, decode_record
from nodedevice_operator.kube.requests import Requests, at
from nodedevice_operator.kube.write_fence import WriteFence
from nodedevice_operator.objects.node import (
    TAINT,
    TAINT_EFFECT,
    UNLABELED,
    NodeRecord,
    NodeSchema,
    TaintAndLabels,
    node_record,
)
from nodedevice_operator.objects.nodedevice import is_real
from nodedevice_operator.remediation.node_taint_and_labels import desired_labels, label_changes

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 2.0
# Nodes between two yields to the loop: most differ in nothing, and then nothing is awaited.
_STEP: Final = 200
# A missing role is logged, and may be granted at any time; so may what a policy denies for one Node.
_FORBIDDEN_SECONDS: Final = 300.0


class NodeLabelsApi(Requests):
    async def label_node(self, node: NodeRecord, labels: Mapping[str, str | None]) -> NodeRecord:
        """Sets labels of this version of the Node, and removes those with None; returns it then. Raises Conflict and NotFound."""
        metadata = {"uid": node.uid, "resourceVersion": str(node.resource_version), "labels": dict(labels)}
        return await self._merge_node(node.name, {"metadata": metadata})

    async def taint_node(self, name: str, uid: str, *, is_tainted: bool) -> NodeRecord:
        """Adds or removes our taint; returns the Node. Raises Conflict if another client writes it meanwhile, and NotFound."""
        node = decode("GET", "nodes", await self._client.request("GET", *at(NODES, name)), NodeSchema)
        # the API treats the list as one value: all of it is written, and only onto the version that was read
        taints = [msgspec.to_builtins(taint) for taint in node.spec.taints if taint.key != TAINT]
        taints += [{"key": TAINT, "effect": TAINT_EFFECT}] if is_tainted else []
        metadata = {"uid": uid, "resourceVersion": node.metadata.resource_version}
        return await self._merge_node(name, {"metadata": metadata, "spec": {"taints": taints}})

    async def _merge_node(self, name: str, patch: Any) -> NodeRecord:
        return decode_record("PATCH", "nodes", await self._merge(*at(NODES, name), patch), NodeSchema, node_record)


@dataclass(eq=False)
class NodeLabelController:
    cache: Cache
    api: NodeLabelsApi
    fence: WriteFence
    _: KW_ONLY
    taint: bool
    labels: bool
    clock: Callable[[], float] = time.monotonic
    # by uid of a Node: the write that a policy denied, and until when it is not tried again
    _denied: dict[str, tuple[TaintAndLabels, float]] = field(default_factory=dict, init=False)

    async def work(self) -> None:
        while True:
            pause = _POLL_SECONDS
            if self.fence.is_open and self.cache.is_complete:
                try:
                    await self.reconcile()
                except Unauthorized:
                    log.debug("Nodes not labeled, as the API server does not accept the credentials")
                except Forbidden:
                    remedy = "set nodeTaint and nodeLabels of the chart to on, or to remove to have them removed"
                    log.warning("forbidden to write taint and labels of Nodes", extra={"remedy": remedy})
                    pause = _FORBIDDEN_SECONDS
                except NotLeading:
                    log.debug("Nodes not labeled, as another operator leads")
            await asyncio.sleep(pause)

    async def reconcile(self) -> None:
        """Every Node once. Raises Forbidden where a role is missing, and NotLeading; other failures are retried the next time."""
        nodes = self.cache.nodes.values()
        uids = {node.uid for node in nodes}
        self._denied = {uid: denied for uid, denied in self._denied.items() if uid in uids}
        newly_denied: list[tuple[NodeRecord, Denied]] = []
        for number, node in enumerate(nodes, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            with apart("node labels", ApiError, node=node.name):
                denied = await self._label(node)
                newly_denied += [(node, denied)] if denied is not None else []
        if newly_denied:
            _log_denied(newly_denied)

    async def _label(self, node: NodeRecord) -> Denied | None:
        """One Node. Returns a policy's denial that is a new one; raises as `reconcile`."""
        desired = self._desired(node)
        if desired == node.taint_and_labels or self._is_to_wait(node, desired):
            return None
        try:
            await self._write(node, desired)
        except (NotFound, Conflict):
            return None
        except Denied as error:
            is_new = node.uid not in self._denied
            self._denied[node.uid] = (desired, self.clock() + _FORBIDDEN_SECONDS)
            return error if is_new else None
        except (Forbidden, NotLeading):
            raise
        except ApiError as error:
            log.debug("Node not labeled; retrying", extra={"node": node.name, "error": error.problem})
        return None

    def _is_to_wait(self, node: NodeRecord, desired: TaintAndLabels) -> bool:
        denied, until = self._denied.get(node.uid, (None, 0.0))
        return self.cache.nodes.is_invalid(node.name) or (denied == desired and self.clock() < until)

    def _desired(self, node: NodeRecord) -> TaintAndLabels:
        if not (self.taint or self.labels):
            return UNLABELED
        of_node = self.cache.node_devices.of_node(node.name)
        owned = (record for record in of_node if record.owner_uid == node.uid and is_real(record))
        return desired_labels(owned, taint=self.taint, labels=self.labels)

    async def _write(self, node: NodeRecord, desired: TaintAndLabels) -> None:
        changes = label_changes(node.taint_and_labels, desired)
        if changes:
            self.cache.nodes.put(await self.api.label_node(node, changes))
        if desired.is_tainted != node.taint_and_labels.is_tainted:
            self.cache.nodes.put(await self.api.taint_node(node.name, node.uid, is_tainted=desired.is_tainted))
        self._denied.pop(node.uid, None)
        fields = {"node": node.name, "tainted": desired.is_tainted, "labels": dict(desired.labels)}
        log.info("taint and labels of Node written", extra=fields)


def _log_denied(denied: list[tuple[NodeRecord, Denied]]) -> None:
    """One line, however many Nodes a policy protects."""
    node, error = denied[0]
    fields = {
        "node": node.name,
        "nodes": len(denied),
        "error": error.problem,
        "remedy": "make the policy allow the operator's taint and labels, or accept that these Nodes stay without them",
    }
    log.warning("an admission policy denies taint or labels of Nodes", extra=fields)
