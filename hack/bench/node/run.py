"""Shared by the benches of a real node: the cluster around the node, and a run of one bench."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hack.bench.results import Result, publishing
from hack.bench.running import bench_folder, show_progress
from tests.cluster.chart import install_chart
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.local.stack import operator_program
from tests.cluster.node.checks import why_not_here
from tests.cluster.processes.processes import reserved_ports

Progress = Callable[[str], None]


@contextmanager
def cluster(folder: Path, progress: Progress) -> Iterator[ControlPlane]:
    """A cluster with the chart and an operator, and no node. Raises ClusterError if it does not start."""
    with ControlPlane.start(folder / "c", progress) as control_plane:
        install_chart(control_plane)
        with reserved_ports(1) as (port,):
            operator = operator_program(control_plane, folder, port)
            try:
                operator.start()
                yield control_plane
            finally:
                operator.process.kill()


def run(measure: Callable[[dict[str, Result], Path, Progress], None], out: Path) -> int:
    """Returns an exit status. If no real node can run here, prints why and measures nothing."""
    if reason := why_not_here():
        print(f"not measured: {reason}")
        return 0
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, signal.default_int_handler)
    with bench_folder() as folder, publishing(out) as results:
        measure(results, folder, show_progress)
    return 0
