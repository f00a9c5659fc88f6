"""What a container may open stays as it was given, whatever happens to the runtime, the container and the pod's resources."""

import json

import pytest

from tests.e2e.chart.cluster import Json
from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import FUSE, MachineCluster
from tests.e2e.machine.observed import opened

_READ_ONLY = "example.com/fuse-r"
# /dev/loop3, which nobody asked for
_OTHER = "b:7:3"
# read, write
_OPENED = {FUSE: (True, False), _OTHER: (False, False)}
_LARGER = {"cpu": "200m", "memory": "96Mi"}


@pytest.fixture
def cluster(cluster: MachineCluster) -> MachineCluster:
    cluster.wait_capacity(_READ_ONLY, 4)
    cluster.run(_sized(user("holds", {_READ_ONLY: 1}), {"cpu": "100m", "memory": "64Mi"}))
    _verify(cluster)
    return cluster


def test_after_the_runtime_was_restarted(cluster: MachineCluster) -> None:
    cluster.machine.run("systemctl restart containerd")
    _verify(cluster)
    cluster.machine.run("systemctl daemon-reload")
    _verify(cluster)


def test_after_its_container_was_restarted(cluster: MachineCluster) -> None:
    cluster.machine.run("kill -9 $(pgrep -x checker)")
    cluster.wait(lambda: cluster.is_running_again("holds"), "the kubelet started the container again")
    _verify(cluster)


def test_after_its_pod_was_resized(cluster: MachineCluster) -> None:
    """In place: runc sets the cgroup's values again, and systemd its unit's."""
    before = cluster.containers("default")
    patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": _LARGER, "limits": _LARGER}}]}}
    cluster.control_plane.kubectl("patch", "pod", "holds", "--subresource=resize", "--patch", json.dumps(patch))
    cluster.wait(lambda: _LARGER.items() <= _limits(cluster).items(), "the container has its larger limits")
    assert cluster.containers("default") == before, "the container was started again"
    limits = cluster.machine.run("find /sys/fs/cgroup/kubepods.slice -path '*cri-containerd*/cpu.max' -exec cat {} +")
    assert "20000 100000" in limits
    _verify(cluster)
    assert cluster.devices_of("holds", _READ_ONLY)


def _verify(cluster: MachineCluster) -> None:
    assert opened(cluster, "holds", "-open", FUSE, "-number", _OTHER) == _OPENED


def _sized(pod: Json, size: Json) -> Json:
    (container,) = pod["spec"]["containers"]
    resources = {"requests": size, "limits": {**container["resources"]["limits"], **size}}
    return {**pod, "spec": {**pod["spec"], "containers": [{**container, "resources": resources}]}}


def _limits(cluster: MachineCluster) -> Json:
    (state,) = cluster.pod("holds")["status"]["containerStatuses"]
    return dict(state.get("resources", {}).get("limits", {}))
