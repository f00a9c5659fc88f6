"""NodeDeviceConfigs on a real node: devices come, change and go without a restart, and a pod that holds one keeps it."""

import time
from collections.abc import Callable
from functools import partial

from tests.cluster.chart import SYSTEM_NAMESPACE
from tests.cluster.observe import Observer, Seen, capacity
from tests.e2e.chart.cluster import NODE, ChartCluster
from tests.e2e.chart.workloads import GPU, config, simulated, user
from tests.e2e.real_node.device_plugins import device_files

FILES = "e2e.example.com/file"
OF_NODE = {"kubernetes.io/hostname": NODE}


def has_capacity(count: int, seen: Seen) -> bool:
    return capacity(seen, NODE, GPU) == count


def test_devices_come_and_go_without_a_restart(cluster: ChartCluster, progress: Callable[[str], None]) -> None:
    cluster.release.install(cluster.values())
    ours = cluster.containers(SYSTEM_NAMESPACE)
    with Observer.nodes(cluster.control_plane.admin_kubeconfig) as nodes:
        for count in (2, 4, 3):
            # a while after the write before: a Node is not written more often than so
            time.sleep(1)
            began = time.monotonic()
            cluster.apply(config("gpus", simulated(count), nodeSelector=OF_NODE))
            seen = nodes.wait(partial(has_capacity, count), since=began)
            progress(f"{count} devices configured, and in the Node after {seen.at - began:.2f} s, `kubectl` included")
    cluster.run(user("holds", {GPU: 1}))
    (held,) = cluster.node_device(GPU)["status"]["allocations"]

    file = device_files()[0]
    generic = [{"resourceName": FILES, "groups": [{"paths": [{"path": file.path}]}]}]
    cluster.apply(config("files", {"generic": generic}, nodeSelector=OF_NODE))
    cluster.wait_capacity(FILES, 1)
    cluster.run(user("opens", {FILES: 1}, "-open", file.path))
    assert cluster.report_of("opens")["opened"][file.path]["read"] == "ok"
    cluster.wait(lambda: _accepted(cluster, "files") == ("True", "Taken"), "the configuration was taken")

    cluster.control_plane.kubectl("delete", "nodedeviceconfigs", "gpus", "files")
    # what a pod holds counts until it ends
    cluster.wait(lambda: (cluster.capacity()[GPU], cluster.capacity()[FILES]) == (1, 1), "what is held is left")
    assert cluster.node_device(GPU)["status"]["allocations"] == [held], "a pod lost its device"
    cluster.control_plane.kubectl("delete", "pods", "holds", "opens", "--grace-period=1")
    cluster.wait(lambda: not any(cluster.capacity().get(name) for name in (GPU, FILES)), "nothing is left")
    assert cluster.containers(SYSTEM_NAMESPACE) == ours, "something was restarted"


def _accepted(cluster: ChartCluster, name: str) -> tuple[str, str] | None:
    """Status and reason of the condition."""
    conditions = cluster.get("nodedeviceconfig", name).get("status", {}).get("conditions", [])
    return next(((c["status"], c["reason"]) for c in conditions if c["type"] == "Accepted"), None)
