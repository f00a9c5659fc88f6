"""Nodes as each test finds them, and as it should leave them: shown, ready, and following their devices."""

from tests.integration.operator_process import PlayedNode


def settled(node: PlayedNode) -> PlayedNode:
    """Have it show 4 devices, and be told to be ready."""
    node.make()
    node.renew_lease()
    node.publish(healthy=4)
    node.wait_shown(4)
    node.wait_condition("Ready", "True")
    return node


def follows(node: PlayedNode) -> None:
    """Its Node goes along with its devices, is repaired, and is told to be ready."""
    for broken in (1, 0):
        node.publish(healthy=4 - broken, broken=broken)
        node.wait_shown(4 - broken)
    node.wait_condition("Ready", "True")
