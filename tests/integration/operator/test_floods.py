"""A NodeDevice that changes without end: its Node is written at a bounded rate, and shows the last state. Counts, not times."""

import contextlib
import time
from collections.abc import Iterator

import pytest
from nodedevice_operator.capacity.reconciler import NODE_WRITES_AT_ONCE, NODE_WRITES_PER_SECOND

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator_process import OperatorProcess, PlayedNode

CHANGES = 200


@pytest.fixture
def operator(operator_by_proxy: OperatorProcess) -> OperatorProcess:
    return operator_by_proxy


@pytest.fixture
def node(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayedNode]:
    with contextlib.ExitStack() as made:
        yield made.enter_context(PlayedNode(installed)).settle()


def writes(proxy: FaultProxy, node: PlayedNode, since: float) -> int:
    path = f"/nodes/{node.name}/status"
    return sum(when >= since and method == "PATCH" and found.endswith(path) for when, method, found in proxy.requests)


def test_a_node_is_written_at_a_bounded_rate_and_shows_the_last_state(proxy: FaultProxy, node: PlayedNode) -> None:
    began = time.monotonic()
    for number in range(CHANGES):
        node.publish(healthy=1 + number % 4)
    seconds = time.monotonic() - began
    assert writes(proxy, node, began) <= NODE_WRITES_AT_ONCE + NODE_WRITES_PER_SECOND * seconds + 1
    node.publish(healthy=7)
    node.wait_shown(7)
    node.wait_condition("Ready", "True")
