"""A node as a stranger has it: a control plane, containerd and the kubelet, and no image of ours on it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.cluster.build import product_images
from tests.cluster.node import checks as node_checks
from tests.cluster.node import containerd
from tests.cluster.processes.processes import removed_at_the_end
from tests.e2e.chart.cluster import control_plane_and_node
from tests.e2e.from_clone.typed import Clone
from tests.hack.release.committed import committed_copy

_HERE = Path(__file__).parent
_LOGS = Path(__file__).parents[3] / "build" / "e2e" / "from_clone"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # images are built, and pods run, on this machine, for which few will do
    reason = product_images.why_not_here() or node_checks.why_not_here()
    for item in items:
        if _HERE in item.path.parents and reason:
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: {reason}"))


@pytest.fixture(scope="package")
def clone(progress: Callable[[str], None]) -> Iterator[Clone]:
    # for what holds sockets: a socket's path has a hundred characters at most
    folder = Path(mkdtemp(prefix="nd-"))
    with removed_at_the_end(folder), control_plane_and_node(folder, progress) as (control_plane, node):
        try:
            clone = committed_copy(folder / "clone")
            yield Clone(clone, control_plane, node, node.outside(containerd.SOCKET))
        finally:
            # the folder goes with the node; what went wrong is often to be read only here
            shutil.copytree(node.folder / "logs", _LOGS, dirs_exist_ok=True)
