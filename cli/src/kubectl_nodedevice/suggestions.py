"""Suggests existing names if a lookup finds nothing."""

from kubectl_nodedevice.errors import UsageProblem
from kubectl_nodedevice.reading import Reader
from kubectl_nodedevice.text import some

_MOST_NAMED = 12
# why a cluster has no devices
NO_PLUGIN_YET = "no device plugin has registered with an agent yet"


def verify_exists(reader: Reader, node: str, resource: str) -> None:
    """For an empty result: a selector may exclude everything. Raises ApiError; UsageProblem as `nothing_of`."""
    if next(reader.each_node_device(node, resource), None) is None:
        raise nothing_of(reader, node, resource)


def nothing_of(reader: Reader, node: str, resource: str) -> UsageProblem:
    """Return an error that names existing nodes or resources with NodeDevices. Raises ApiError."""
    every = reader.node_devices()
    nodes = sorted({each.node for each in every})
    if node and node not in nodes:
        remedy = f"nodes with NodeDevices: {some(nodes, _MOST_NAMED) or 'none'}"
        return UsageProblem(f"node {node} has no NodeDevices", remedy, code="NoSuchNode")
    there = sorted({each.resource for each in every if node in ("", each.node)})
    where = f" on node {node}" if node else ""
    remedy = f"existing resources: {some(there, _MOST_NAMED) or 'none'}"
    return UsageProblem(f"resource {resource} does not exist{where}", remedy, code="NoSuchResource")
