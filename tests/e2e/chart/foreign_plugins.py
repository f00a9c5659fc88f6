"""Device plugins of others on the cluster's node, registered with its kubelet."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nodedevice_agent.kubelet.directory import CHECKPOINT, PLUGIN_DIR

from tests.cluster.node.machine import MachineProcess
from tests.e2e.chart.cluster import NODE, ChartCluster


@contextmanager
def running(cluster: ChartCluster, program: Path) -> Iterator[MachineProcess]:
    plugin = cluster.node.process(program.name, [str(program)])
    plugin.start()
    try:
        yield plugin
    finally:
        plugin.kill()


def forget(cluster: ChartCluster, resources: Sequence[str]) -> None:
    """The kubelet remembers them in its checkpoint: the next test's agent would show them, too."""
    node, kubectl = cluster.node, cluster.control_plane.kubectl
    kubectl("delete", "pods", "--all", "-n", "default", "--grace-period=1")
    node.kubelet.kill()
    (node.outside("/var/lib/kubelet") / PLUGIN_DIR / CHECKPOINT).unlink(missing_ok=True)
    node.start_kubelet()
    node.wait_ready()
    for field in ("capacity", "allocatable"):
        for resource in resources:
            operation = {"op": "remove", "path": f"/status/{field}/{resource.replace('/', '~1')}"}
            patch = ("--subresource=status", "--type=json", "-p", json.dumps([operation]))
            kubectl("patch", "node", NODE, *patch, check=False)
