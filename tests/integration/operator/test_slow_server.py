"""An API server whose answers to writes take seconds: the lead is kept, nothing is done twice, and nobody calls it an outage."""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from nodedevice_api import names

from tests.cluster.api import Lease
from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator_process import OperatorProcess, PlayedNode

_NODES = 8
_RENEWALS = 8
_SLOW = (1.0, 2.9, 2.0, 3.0, 1.5, 2.4)
_LEASE = f"/leases/{names.OPERATOR_LEASE}"


@pytest.fixture
def operator(operator_by_proxy: OperatorProcess) -> OperatorProcess:
    return operator_by_proxy


@pytest.fixture
def nodes(installed: ControlPlane, operator: OperatorProcess) -> Iterator[list[PlayedNode]]:
    with ExitStack() as made:
        yield [made.enter_context(PlayedNode(installed)).settle() for _ in range(_NODES)]


def test_the_lead_is_kept_and_each_change_is_written_once(
    installed: ControlPlane, operator: OperatorProcess, proxy: FaultProxy, nodes: list[PlayedNode]
) -> None:
    before = {node.name: proxy.count("PATCH", f"/nodes/{node.name}/status") for node in nodes}
    pods = proxy.count("GET", "/pods")
    proxy.slow_writes = {_LEASE: itertools.cycle(_SLOW), "/status": itertools.cycle(_SLOW)}
    renewed = proxy.count("PUT", _LEASE)
    for healthy in (3, 4, 2):
        for node in nodes:
            node.publish(healthy=healthy)
        for node in nodes:
            node.wait_shown(healthy)
    wait_until(lambda: proxy.count("PUT", _LEASE) >= renewed + _RENEWALS, "the Lease was renewed some times")
    written = {name: proxy.count("PATCH", f"/nodes/{name}/status") - first for name, first in before.items()}
    assert written == dict.fromkeys(before, 3)
    assert proxy.count("GET", "/pods") == pods, "no resync"
    spec = installed.client.get(Lease, names.OPERATOR_LEASE, namespace=SYSTEM_NAMESPACE).spec
    assert spec is not None
    assert 4 < (spec.leaseDurationSeconds or 0) <= 20, "several of the slowest answers"
    assert operator.logged("error", "critical") == []
    # the first slow answer may come too late for the Lease as it was
    assert operator.logged("info").count("leading") <= 2
