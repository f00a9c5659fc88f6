"""What nobody should send the operator: it says so once, takes nothing off a Node meanwhile, and is right afterwards.

It speaks to the API server by way of a proxy that can give it trouble. Each file of tests has one process for all its tests.
"""

from collections.abc import Iterator

import pytest

from tests.cluster.agent_objects import now_text
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.waiting import wait_until
from tests.fakes.fault_proxy import FaultProxy
from tests.integration.operator_process import LogFromHere, OperatorProcess, PlayedNode, PlayNode, operator_writes


@pytest.fixture(scope="module")
def proxy(installed: ControlPlane) -> Iterator[FaultProxy]:
    with FaultProxy(installed.admin_kubeconfig) as made:
        yield made


@pytest.fixture(scope="module")
def process(
    installed: ControlPlane, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    options = ("--agent-poll-seconds", "1", "--no-leader-elect", "--no-required-plugins")
    made = OperatorProcess(installed, tmp_path_factory.mktemp("operator"), *options)
    made.reach_by(proxy.url)
    with made.running():
        yield made


@pytest.fixture
def logged(process: OperatorProcess) -> LogFromHere:
    return LogFromHere(process)


@pytest.fixture
def operator(process: OperatorProcess, proxy: FaultProxy) -> Iterator[OperatorProcess]:
    """The same process in every test of a file: one that ended fails the test it ended in, and those after it."""
    pid = process.pid
    yield process
    proxy.rules.clear()
    wait_until(lambda: process.get("/readyz")[0] == 200, "the operator is ready afterwards")
    assert process.pid == pid
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def node(played: PlayNode) -> PlayedNode:
    return played().settle()


@pytest.fixture(autouse=True)
def bystander(installed: ControlPlane, played: PlayNode) -> Iterator[PlayedNode]:
    """A Node that has nothing to do with it: in the end nobody has written it."""
    made = played().settle()
    # what brought it here is in the log sooner or later; when it was sent distinguishes the two
    since = now_text()
    yield made
    assert made.shown() == ("4", "4")
    written = operator_writes(installed, f"/{made.name}", since)
    assert [f"{event['verb']} {event['requestURI']}" for event in written] == []
