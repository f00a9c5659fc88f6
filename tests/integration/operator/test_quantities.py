"""Numbers in a Node's status that nobody can mean, and that the API takes: they hurt neither this Node nor any other."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.cluster.control_plane.control_plane import ControlPlane
from tests.integration.operator_process import GPU, OperatorProcess, PlayedNode

# what the API server makes of 1e5000: so many digits that Python refuses to write them
TOO_GREAT = "1e5000"
# an exponent beyond the one that Python's decimals have by themselves
FAR_TOO_GREAT = "1e3000000"


@pytest.fixture
def operator(installed: ControlPlane, tmp_path: Path) -> Iterator[OperatorProcess]:
    made = OperatorProcess(installed, tmp_path / "operator", "--no-leader-elect", "--no-required-plugins")
    made.start()
    yield made
    made.close()


@pytest.fixture
def nodes(installed: ControlPlane, operator: OperatorProcess) -> Iterator[list[PlayedNode]]:
    with PlayedNode(installed) as first, PlayedNode(installed) as second:
        yield [first.settle(), second.settle()]


def are_repaired(nodes: list[PlayedNode], manager: str) -> None:
    for node in nodes:
        node.kubelet_writes(manager, capacity={GPU: "1"}, allocatable={GPU: "1"})
    for node in nodes:
        node.wait_shown(4)


def test_a_number_of_somebody_elses(operator: OperatorProcess, nodes: list[PlayedNode]) -> None:
    nodes[0].kubelet_writes("evil", capacity={"evil.example/x": FAR_TOO_GREAT})
    are_repaired(nodes, "first")
    # a fresh start reads it in a list
    assert operator.stop() == 0
    operator.start()
    are_repaired(nodes, "second")
    assert "Traceback" not in operator.log.read_text()


def test_a_number_under_our_own_name(operator: OperatorProcess, nodes: list[PlayedNode]) -> None:
    nodes[0].kubelet_writes("evil", capacity={GPU: TOO_GREAT}, allocatable={GPU: TOO_GREAT})
    nodes[0].wait_shown(4)
    [message, *_] = nodes[0].wait_events("CapacityRepaired")
    assert message == f"{GPU}: evil set it to {2**63 - 1}, restored to 4"
    assert "Traceback" not in operator.log.read_text()
