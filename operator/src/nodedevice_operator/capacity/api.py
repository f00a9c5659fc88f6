"""Requests about capacity: one Node read, and its extended resources applied."""

from collections.abc import Mapping

from nodedevice_operator.kube.api import CORE, Requests, path_segment
from nodedevice_operator.kube.decode import decode_record
from nodedevice_operator.objects.node import NodeRecord, NodeSchema, node_record


class CapacityApi(Requests):
    """Reads and writes capacity and allocatable of Nodes."""

    async def read_node(self, name: str) -> NodeRecord:
        """The Node as it is now. Raises NotFound."""
        data = await self._client.request("GET", "nodes", f"{CORE}/nodes/{path_segment(name)}")
        return decode_record("GET", "nodes", data, NodeSchema, node_record)

    async def apply_capacity(self, node: NodeRecord, numbers: Mapping[str, int], *, force: bool) -> NodeRecord:
        """Apply exactly these extended resources to this version of the Node; return the Node after the write.

        Server-side apply removes those of ours that are not in `numbers`.
        Raises Conflict when the Node has changed since, or when others own a field that must change and force is False;
        Invalid when the Node has another uid.
        """
        quantities = {resource: str(number) for resource, number in sorted(numbers.items())}
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            # The API server rejects the apply if the uid or the version differs: the Node was recreated under this name,
            # or another client, in particular another operator, has written it since the decision.
            "metadata": {"name": node.name, "uid": node.uid, "resourceVersion": str(node.resource_version)},
            "status": {"capacity": quantities, "allocatable": quantities},
        }
        data = await self._apply("nodes/status", f"{CORE}/nodes/{path_segment(node.name)}/status", body, force=force)
        return decode_record("PATCH", "nodes", data, NodeSchema, node_record)
