"""Plugins and kubelets here answer over real sockets; and the node whose kubelet is read."""

from pathlib import Path

import pytest

from tests.fakes.kubelet_answers import KubeletAnswers
from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines
from tests.unit.node_agent.kubelet.reader_node import Node


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(KubeletAnswers(tmp_path, monkeypatch))
