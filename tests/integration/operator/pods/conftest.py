"""An operator for each file of tests, a Node that shows devices, and pods to hold them."""

from collections.abc import Iterator

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator.pods.pods import Pods
from tests.integration.operator_process import OperatorProcess, PlayedNode


@pytest.fixture
def node(installed: ControlPlane, operator: OperatorProcess) -> Iterator[PlayedNode]:
    """A Node with 4 GPUs, shown."""
    with PlayedNode(installed) as made:
        yield made.settle()


@pytest.fixture
def pods(installed: ControlPlane, namespace: str) -> Pods:
    return Pods(installed, namespace)
