"""The node whose sources are compared, with host files of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nodedevice_agent import metrics
from nodedevice_agent.offered_twice.host import HostReader

from tests.unit.node_agent.offered_twice.compared_node import Node


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    yield Node(HostReader(str(tmp_path)))
    metrics.OFFERED_TWICE.clear()
