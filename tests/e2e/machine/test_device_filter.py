"""What a container may open on cgroup v2: the runtime's eBPF filter, as systemd knows it too."""

import pytest

from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import FUSE, LOOP, MachineCluster

_OK = "ok"


@pytest.mark.parametrize(
    ("kind", "path", "permissions", "read", "write"),
    [
        pytest.param("fuse", FUSE, "r", True, False),
        pytest.param("fuse", FUSE, "w", False, True),
        pytest.param("fuse", FUSE, "rw", True, True),
        pytest.param("fuse", FUSE, "rm", True, False),
        pytest.param("fuse", FUSE, "m", False, False),
        pytest.param("loop", LOOP, "r", True, False),
        pytest.param("loop", LOOP, "rw", True, True),
    ],
)
def test_a_device_opens_as_configured(
    cluster: MachineCluster, kind: str, path: str, permissions: str, read: bool, write: bool
) -> None:
    resource = f"example.com/{kind}-{permissions}"
    cluster.wait_capacity(resource, 4)
    cluster.run(user("opens", {resource: 1}, "-open", path))
    found = cluster.report_of("opens")["opened"][path]
    assert {way: found[way] == _OK for way in ("read", "write")} == {"read": read, "write": write}, found


def test_no_other_device_opens_even_after_a_reload(cluster: MachineCluster) -> None:
    """systemd writes its scopes' filters again; what hooks that go past the runtime allow is lost then."""
    cluster.run(user("holds", {"example.com/fuse-rw": 1}, "-open", FUSE))
    cluster.run(user("none", {}, "-number", "c:10:229"))
    (found,) = cluster.report_of("none")["opened"].values()
    assert found["read"] != _OK, "a pod without a device opens it"
    cluster.machine.run("systemctl daemon-reload")
    shell = "exec 3<>/dev/fuse && echo opened"
    assert "opened" in cluster.control_plane.kubectl("exec", "holds", "--", "/bin/sh", "-c", shell)
    scopes = cluster.machine.run("systemctl show --property=DevicePolicy,DeviceAllow 'cri-containerd-*.scope'")
    assert "DevicePolicy=strict" in scopes
    assert "/dev/char/10:229 rw" in scopes
