"""A watch over which nothing comes any more, though its connection stays: the process ends, and a fresh one is right."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator_process import OperatorProcess, PlayedNode


@pytest.fixture
def operator(installed: ControlPlane, proxy: FaultProxy, tmp_path: Path) -> Iterator[OperatorProcess]:
    made = OperatorProcess(installed, tmp_path, "--watchdog-seconds", "1")
    made.reach_by(proxy.url)
    yield made
    made.close()


def test_a_frozen_watch_ends_the_process(installed: ControlPlane, operator: OperatorProcess, proxy: FaultProxy) -> None:
    with PlayedNode(installed) as node:
        operator.start()
        node.settle()
        proxy.is_frozen.set()
        node.publish(healthy=3)
        assert operator.wait_ended() == 1
        last = operator.log.read_text().splitlines()[-1]
        assert last.startswith("nodedevice-operator: the watch is stale: it has not delivered ")
        assert operator.logged("error") == ["watch is stale"]
        assert node.shown() == ("4", "4")
        proxy.is_frozen.clear()
        operator.start()
        node.wait_shown(3)


def test_cut_watches_hide_no_frozen_one(installed: ControlPlane, operator: OperatorProcess, proxy: FaultProxy) -> None:
    """As by a load balancer with a limit for what is idle: the API server answers all the time."""
    with PlayedNode(installed) as node:
        operator.start()
        # until the operator has nothing to write on it: the answer to a write would show it as it is
        node.settle()
        proxy.frozen_kinds = frozenset({"nodedevices"})
        node.publish(healthy=3)
        for _ in range(3):
            wait_until(lambda: proxy.cut("poddevices") == 1, "it is open, and cut")
        assert operator.wait_ended() == 1
        assert operator.logged("error") == ["watch is stale"]
