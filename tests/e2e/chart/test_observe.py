"""`helm install` on a node whose kubelet serves other people's plugins already: they are shown, and nothing else happens."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from nodedevice_api import names

from tests.cluster.build.binaries import find
from tests.cluster.errors import BinaryError
from tests.cluster.node.machine import MachineProcess
from tests.e2e.chart.cluster import NODE, ChartCluster
from tests.e2e.chart.foreign_plugins import forget, running
from tests.e2e.chart.workloads import user
from tests.fakes.third_party import rust_plugin, sample_plugin

SAMPLE, WIDGETS = sample_plugin.RESOURCE, rust_plugin.RESOURCE


@pytest.fixture
def plugins(cluster: ChartCluster) -> Iterator[list[MachineProcess]]:
    """Kubernetes' own and one on another gRPC stack, registered with the kubelet before anything of ours is there."""
    try:
        programs = [find(["sample-device-plugin"])["sample-device-plugin"], rust_plugin.program()]
    except BinaryError as error:
        pytest.skip(str(error))
    with ExitStack() as stack:
        yield [stack.enter_context(running(cluster, program)) for program in programs]
    forget(cluster, (SAMPLE, WIDGETS))


def test_what_the_kubelet_serves_is_seen_in_a_minute(
    cluster: ChartCluster, plugins: list[MachineProcess], progress: Callable[[str], None]
) -> None:
    for resource in (SAMPLE, WIDGETS):
        cluster.wait_capacity(resource, 2)
    cluster.run(user("before", {SAMPLE: 1}))
    containers, capacity = cluster.containers("default"), cluster.capacity()
    processes = [process.pid for process in (*plugins, cluster.node.kubelet, cluster.node.containerd)]

    began = time.monotonic()
    cluster.release.install(cluster.values())
    cluster.wait(lambda: _is_shown(cluster), "devices and holders of the kubelet are shown")
    progress(f"\nfrom `helm install` until both kinds showed them: {time.monotonic() - began:.1f} s")

    nodedevices = cluster.control_plane.kubectl("get", "nodedevices", "--output", "wide").splitlines()
    column = nodedevices[0].split().index("SERVED-BY")
    assert {line.split()[column] for line in nodedevices[1:]} == {names.SERVED_BY_KUBELET}
    assert cluster.containers("default") == containers, "a pod was restarted"
    assert [process.pid for process in (*plugins, cluster.node.kubelet, cluster.node.containerd)] == processes
    assert cluster.capacity() == capacity

    # it goes on as before
    cluster.run(user("after", {SAMPLE: 1}))
    cluster.wait(lambda: set(_holders(cluster, SAMPLE)) == {"before", "after"}, "both pods are shown")
    cluster.release.uninstall()
    assert cluster.capacity() == capacity
    assert names.GROUP not in str(cluster.get("node", NODE)["metadata"].get("annotations", {}))
    assert {name: state for name, state in cluster.containers("default").items() if name in containers} == containers
    assert [process.pid for process in (*plugins, cluster.node.kubelet, cluster.node.containerd)] == processes


def _is_shown(cluster: ChartCluster) -> bool:
    listed = cluster.control_plane.kubectl("get", "nodedevices,poddevices", "-A", check=False)
    return (
        all(resource.rpartition("/")[2] in listed for resource in (SAMPLE, WIDGETS))
        and list(_holders(cluster, SAMPLE)) == ["before"]
        and "before" in cluster.names_of("poddevices", "-A")
    )


def _holders(cluster: ChartCluster, resource: str) -> dict[str, list[str]]:
    status = cluster.node_device(resource).get("status", {})
    return {each["name"]: each["deviceIDs"] for each in status.get("allocations", [])}
