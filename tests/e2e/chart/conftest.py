"""One cluster for all tests of this folder; each finds it as if the chart had never been there."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from tests.cluster.build import product_images
from tests.cluster.node import checks as node_checks
from tests.cluster.processes.processes import removed_at_the_end
from tests.e2e.chart.cluster import ChartCluster

_HERE = Path(__file__).parent
_LOGS = Path(__file__).parents[3] / "build" / "e2e" / "chart"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [item for item in items if _HERE in item.path.parents]
    # each test is skipped by its name: few machines will do for pods, and what looks into a release alone needs no pod
    for item in ours:
        reason = product_images.why_not_here()
        if "chart_cluster" in getattr(item, "fixturenames", ()):
            reason = reason or node_checks.why_not_here()
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"{item.name}: {reason}"))


@pytest.fixture(scope="package")
def logs() -> Path:
    """Where the cluster's are kept: each run of tests has its own."""
    return _LOGS


@pytest.fixture(scope="package")
def chart_cluster(progress: Callable[[str], None], logs: Path) -> Iterator[ChartCluster]:
    # for what holds sockets: a socket's path has a hundred characters at most
    folder = Path(mkdtemp(prefix="nd-"))
    with removed_at_the_end(folder), ChartCluster.start(folder, progress) as cluster:
        try:
            yield cluster
        finally:
            # the folder goes with the node; what went wrong is often to be read only here
            shutil.copytree(cluster.node.folder / "logs", logs, dirs_exist_ok=True)


@pytest.fixture
def cluster(chart_cluster: ChartCluster) -> Iterator[ChartCluster]:
    """Without any trace of the chart, at the beginning and at the end."""
    yield chart_cluster
    chart_cluster.remove_all()
