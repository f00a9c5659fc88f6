"""What a container may open on cgroup v2: the runtime's eBPF filter, as systemd knows it too."""

from tests.e2e.chart.workloads import user
from tests.e2e.machine.cluster import FUSE, LOOP, MachineCluster

_OK = "ok"
_READ, _WRITE = "read", "write"
# what opens, by resource and path; resources are named after the permissions that they are configured with
_OPENS = {
    ("fuse-r", FUSE): {_READ},
    ("fuse-w", FUSE): {_WRITE},
    ("fuse-rw", FUSE): {_READ, _WRITE},
    ("fuse-rm", FUSE): {_READ},
    ("fuse-m", FUSE): set(),
    ("loop-r", LOOP): {_READ},
    ("loop-rw", LOOP): {_READ, _WRITE},
}


def test_devices_open_as_configured(cluster: MachineCluster) -> None:
    """A pod for each, side by side."""
    for name, _ in _OPENS:
        cluster.wait_capacity(f"example.com/{name}", 4)
    cluster.apply(*(user(name, {f"example.com/{name}": 1}, "-open", path) for name, path in _OPENS))
    found = {(name, path): cluster.report_of(name)["opened"][path] for name, path in _OPENS}
    opened = {each: {way for way in (_READ, _WRITE) if ways[way] == _OK} for each, ways in found.items()}
    assert opened == _OPENS, found


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
