"""The session's control plane, and a real node for each way in which devices reach containers."""

import shutil
import uuid
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import operator_program
from tests.cluster.node.checks import why_not_here
from tests.cluster.node.layout import NodeOptions
from tests.cluster.node.real_node import RealNode
from tests.cluster.processes.processes import removed_at_the_end, reserved_ports
from tests.e2e.real_node.device_plugins import device_files, event_loop
from tests.e2e.real_node.node_under_test import BARE, KUBELET, NRI, NodeUnderTest
from tests.e2e.recording import RanOn, is_recording

Progress = Callable[[str], None]

_HERE = Path(__file__).parent
_FILES_NEEDED = 5
_NODES = {"bare_node", "nri_node", "kubelet_node", "any_node", "our_node"}
_LOGS = Path(__file__).parents[3] / "build" / "e2e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if _HERE in item.path.parents]
    # a kubelet and containers run here, for which few machines will do. Each test is skipped by its name
    if ours and (reason := _why_not()):
        for item in ours:
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: {reason}"))


def _why_not() -> str:
    if reason := why_not_here():
        return reason
    found = len(device_files())
    if found >= _FILES_NEEDED:
        return ""
    return (
        f"{_FILES_NEEDED} device files are needed, and {found} can be opened here: load modules such as fuse, tun, loop"
    )


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test that failed leaves its pods and what it killed, which the next one is not to trip over."""
    yield
    for name in _NODES & set(request.fixturenames):
        under_test: NodeUnderTest = request.getfixturevalue(name)
        under_test.bring_back()
        under_test.remove_pods()


@pytest.fixture(autouse=True)
def recorded(request: pytest.FixtureRequest, ran_on: RanOn) -> None:
    """Where results are recorded: which node of ours a test runs on."""
    for name in sorted(_NODES & set(request.fixturenames)) if is_recording() else ():
        under_test: NodeUnderTest = request.getfixturevalue(name)
        if under_test.delivery != BARE:
            ran_on(under_test.described)


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """For what holds sockets: a socket's path has a hundred characters at most."""
    folder = Path(mkdtemp(prefix="nd-"))
    with removed_at_the_end(folder):
        yield folder


@pytest.fixture(scope="session")
def plugin_loop() -> Iterator[AbstractEventLoop]:
    with event_loop() as loop:
        yield loop


@pytest.fixture(scope="session")
def product(installed: ControlPlane, short_folder: Path) -> Iterator[ControlPlane]:
    """The control plane with chart and operator."""
    with reserved_ports(1) as (port,):
        operator = operator_program(installed, short_folder, port)
        operator.start()
        try:
            yield installed
        finally:
            operator.process.kill()


def _node_fixture(delivery: str) -> Callable[..., Iterator[NodeUnderTest]]:
    @pytest.fixture(scope="session", name=f"{delivery}_node")
    def node(
        product: ControlPlane, short_folder: Path, plugin_loop: AbstractEventLoop, progress: Progress
    ) -> Iterator[NodeUnderTest]:
        yield from _under_test(product, short_folder, delivery, plugin_loop, progress)

    return node


bare_node, nri_node, kubelet_node = (_node_fixture(delivery) for delivery in (BARE, NRI, KUBELET))


@pytest.fixture(scope="session", params=[NRI, KUBELET])
def our_node(request: pytest.FixtureRequest) -> NodeUnderTest:
    """Each in turn: what holds wherever the agent is."""
    found: NodeUnderTest = request.getfixturevalue(f"{request.param}_node")
    return found


@pytest.fixture(scope="session", params=[BARE, NRI, KUBELET])
def any_node(request: pytest.FixtureRequest) -> NodeUnderTest:
    """Each in turn: what holds for all of them."""
    found: NodeUnderTest = request.getfixturevalue(f"{request.param}_node")
    return found


def _under_test(
    product: ControlPlane, short_folder: Path, delivery: str, loop: AbstractEventLoop, progress: Progress
) -> Iterator[NodeUnderTest]:
    name = f"{delivery}-{uuid.uuid4().hex[:6]}"
    product.add_namespace(name)
    # pods that ask are marked all over the cluster, and on the bare node nobody would answer for them
    options = NodeOptions(validator=delivery != BARE, status_seconds=1)
    with RealNode.start(product, name, short_folder / delivery, progress, options) as node:
        under_test = NodeUnderTest(product, node, delivery, loop)
        try:
            with under_test.running():
                yield under_test
                product.remove_namespace(name)
        finally:
            # the folder goes with the node; what went wrong is often to be read only here
            shutil.copytree(node.folder / "logs", _LOGS / delivery, dirs_exist_ok=True)
    product.remove_node(name)
