"""The whole product as the demos run it: with the programs of a control plane, and with none that only tests need.

No Helm: the chart was rendered before. Missing programs are built or downloaded first, and meanwhile an agent shows what it
can do alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from hack.demo import rendered_chart
from hack.demo.narration import show_progress
from hack.demo.waiting_agent import shown_meanwhile
from tests.cluster.build.binaries import find
from tests.cluster.cluster import Cluster
from tests.cluster.control_plane.layout import CONTROL_PLANE
from tests.cluster.local.current import is_current_wanted, open_cluster
from tests.cluster.local.stack import Stack


def start_stack(folder: Path, scheduled: Sequence[str] = (), **options: Any) -> Stack:
    """As Stack.start, of which `options` are."""
    opener = partial(open_demo_cluster, more_programs=["kube-scheduler"] if scheduled else [])
    return Stack.start(
        folder, show_progress, open_cluster=opener, chart=rendered_chart.load, scheduled=scheduled, **options
    )


@contextmanager
def open_demo_cluster(
    folder: Path, progress: Callable[[str], None], more_programs: Sequence[str] = ()
) -> Iterator[Cluster]:
    """The cluster that CLUSTER names; a process plays the Nodes that are made in it. Raises ClusterError, Broken."""
    programs = ("kubectl",) if is_current_wanted() else CONTROL_PLANE
    with shown_meanwhile(folder.with_name("waits")):
        find([*programs, *more_programs], progress)
    with open_cluster(folder, progress) as cluster:
        progress("its nodes have no kubelet: this demo reports them Ready and their pods Running, as kubelets would")
        yield cluster
