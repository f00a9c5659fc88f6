"""Which paths that the agent sees are the host's."""

from pathlib import Path

import pytest
from nodedevice_agent.lib import host_view
from nodedevice_agent.lib.host_view import seen, sees_all

MOUNTS = """\
1 0 0:1 / / rw - overlay overlay rw
2 1 0:2 / /dev rw - devtmpfs devtmpfs rw
3 1 0:3 /etc/cdi /etc/cdi ro - ext4 /dev/sda1 rw
4 1 0:3 /usr/lib/libcuda.so.1 /usr/lib/libcuda.so.1 ro - ext4 /dev/sda1 rw
odd
"""


@pytest.mark.parametrize(
    ("root", "in_pod", "seen_paths"),
    [
        ("", False, {"/dev/null", "/etc/cdi", "/usr/lib/libcuda.so.1", "/usr/lib/libc.so", "/devices"}),
        ("/host", True, {"/dev/null", "/etc/cdi", "/usr/lib/libcuda.so.1", "/usr/lib/libc.so", "/devices"}),
        ("", True, {"/dev/null", "/etc/cdi", "/usr/lib/libcuda.so.1"}),
    ],
)
def test_what_is_the_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, in_pod: bool, seen_paths: set[str]
) -> None:
    (tmp_path / "mountinfo").write_text(MOUNTS)
    monkeypatch.setattr(host_view, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    if in_pod:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    paths = ["/dev/null", "/etc/cdi", "/usr/lib/libcuda.so.1", "/usr/lib/libc.so", "/devices"]
    assert {path for path in paths if seen(root)(path)} == seen_paths
    assert sees_all(root) is (len(seen_paths) == len(paths))


def test_without_a_table_of_mounts_nothing_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_view, "_MOUNTS", tmp_path / "gone")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert not seen("")("/dev/null")
