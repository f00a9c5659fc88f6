"""What a pod asks for, as the scheduler counts it."""

import pytest
from nodedevice_agent.devicemanager.pods import Container

from tests.unit.node_agent.devicemanager.scenario import GPU, container, init, pod, sidecar


@pytest.mark.parametrize(
    ("containers", "count"),
    [
        pytest.param([container("a")], 0, id="none"),
        pytest.param([container("a", gpu=2), container("b", gpu=1)], 3, id="app containers run together"),
        pytest.param([init("one", 2), init("two", 3), container("a", gpu=1)], 3, id="init containers one by one"),
        pytest.param([init("one", 1), container("a", gpu=2)], 2, id="an init container that asks for less"),
        pytest.param([sidecar("proxy", 1), container("a", gpu=2)], 3, id="a sidecar stays"),
        pytest.param([sidecar("proxy", 1), init("one", 2), container("a", gpu=1)], 3, id="init after a sidecar"),
        pytest.param([init("one", 2), sidecar("proxy", 1), container("a", gpu=0)], 2, id="init before a sidecar"),
        pytest.param([container("a", nic=4)], 0, id="something else"),
    ],
)
def test_how_many_the_scheduler_counts(containers: list[Container], count: int) -> None:
    assert pod("p", *containers).requested_count(GPU) == count
