"""What nobody should send the operator: it says so once, takes nothing off a Node meanwhile, and is right afterwards.

It speaks to the API server by way of a proxy that can give it trouble. Each file of tests has one process for all its tests.
"""

import base64
from collections.abc import Callable, Iterator

import pytest
import yaml

from hack.cluster.control_plane.control_plane import ControlPlane
from hack.cluster.waiting import wait_until
from tests.fakes.proxies.trouble_proxy import TroubleProxy
from tests.integration.operator.bad_input.settled_nodes import settled
from tests.integration.operator.bad_input.told import Told
from tests.integration.operator_process import OperatorProcess, PlayedNode, now_text, operator_writes


@pytest.fixture(scope="module")
def proxy(installed: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubleProxy]:
    content = yaml.safe_load(installed.admin_kubeconfig.read_text())
    [cluster] = [entry["cluster"] for entry in content["clusters"]]
    authority = tmp_path_factory.mktemp("proxy") / "authority.pem"
    authority.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    made = TroubleProxy(cluster["server"], authority)
    yield made
    made.close()


@pytest.fixture(scope="module")
def process(
    installed: ControlPlane, proxy: TroubleProxy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    options = ("--agent-poll-seconds", "1", "--no-leader-elect", "--no-required-plugins")
    made = OperatorProcess(installed, tmp_path_factory.mktemp("operator"), *options)
    made.reach_by(proxy.url)
    made.start()
    yield made
    made.close()


@pytest.fixture
def told(process: OperatorProcess) -> Told:
    return Told(process)


@pytest.fixture
def operator(process: OperatorProcess, proxy: TroubleProxy) -> Iterator[OperatorProcess]:
    """The same process in every test of a file: one that ended fails the test it ended in, and those after it."""
    pid = process.pid
    yield process
    proxy.rules.clear()
    wait_until(lambda: process.get("/readyz")[0] == 200, "the operator is ready afterwards")
    assert process.pid == pid
    assert "Traceback" not in process.log.read_text()


@pytest.fixture
def node(played: Callable[[], PlayedNode]) -> PlayedNode:
    return settled(played())


@pytest.fixture
def bystander(installed: ControlPlane, played: Callable[[], PlayedNode]) -> Iterator[PlayedNode]:
    """A Node that has nothing to do with it: in the end nobody has written it."""
    made = settled(played())
    # what brought it here is in the log sooner or later; by when it was sent the two are told apart
    since = now_text()
    yield made
    assert made.shown() == ("4", "4")
    written = operator_writes(installed, f"/{made.name}", since)
    assert [f"{event['verb']} {event['requestURI']}" for event in written] == []
