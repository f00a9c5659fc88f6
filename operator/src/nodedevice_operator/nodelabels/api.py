"""Requests that write the operator's taint and labels of a Node."""

from collections.abc import Mapping
from typing import Any

import msgspec
from nodedevice_api import names

from nodedevice_operator.kube.api import CORE, Requests, path_segment
from nodedevice_operator.kube.client import MERGE_PATCH
from nodedevice_operator.kube.decode import decode, decode_record
from nodedevice_operator.objects.node import TAINT, TAINT_EFFECT, NodeRecord, NodeSchema, node_record


class NodeLabelsApi(Requests):
    """Writes the taint and the labels of Nodes."""

    async def label_node(self, node: NodeRecord, labels: Mapping[str, str | None]) -> NodeRecord:
        """Set these labels of this version of the Node, and remove those that are None; return the Node after the write.

        Raises Conflict when another client has written the Node since, and NotFound.
        """
        metadata = {"uid": node.uid, "resourceVersion": str(node.resource_version), "labels": dict(labels)}
        return await self._merge_node(node.name, {"metadata": metadata})

    async def taint_node(self, name: str, uid: str, *, is_tainted: bool) -> NodeRecord:
        """Add our taint to the Node of that uid, or remove it; return the Node after the write.

        Raises Conflict when another client writes the Node in between, and NotFound.
        """
        path = f"{CORE}/nodes/{path_segment(name)}"
        node = decode("GET", "nodes", await self._client.request("GET", "nodes", path), NodeSchema)
        # the API treats the list as one value: all of it is written, and only onto the version that was read
        taints = [msgspec.to_builtins(taint) for taint in node.spec.taints if taint.key != TAINT]
        taints += [{"key": TAINT, "effect": TAINT_EFFECT}] if is_tainted else []
        metadata = {"uid": uid, "resourceVersion": node.metadata.resource_version}
        return await self._merge_node(name, {"metadata": metadata, "spec": {"taints": taints}})

    async def _merge_node(self, name: str, patch: Any) -> NodeRecord:
        query = {"fieldManager": names.OPERATOR_FIELD_MANAGER}
        path = f"{CORE}/nodes/{path_segment(name)}"
        data = await self._client.request("PATCH", "nodes", path, query=query, body=patch, content_type=MERGE_PATCH)
        return decode_record("PATCH", "nodes", data, NodeSchema, node_record)
