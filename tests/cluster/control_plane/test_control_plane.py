"""Nothing of a control plane stays behind, and it never overwrites files of others."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.errors import FolderError

_ROOT = Path(__file__).parents[3]
_PATIENCE_SECONDS = 60.0


def test_a_folder_with_somebodys_files_is_refused(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(FolderError, match="not empty"):
        ControlPlane.start(tmp_path)
    assert (tmp_path / "precious").exists()


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("how", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0), (signal.SIGINT, 0)], ids=str
)
def test_nothing_outlives_the_starter(tmp_path: Path, how: signal.Signals, status: int) -> None:
    folder = tmp_path / "control-plane"
    command = [sys.executable, "-m", "tests.cluster", "up", "--folder", str(folder)]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as starter:
        try:
            assert starter.stdout is not None
            assert starter.stdout.readline() == f"export KUBECONFIG={folder}/admin.kubeconfig\n"
            children = psutil.Process(starter.pid).children(recursive=True)
            assert {child.name() for child in children} >= {"etcd", "kube-apiserver", "kube-scheduler"}
            assert any("tests.cluster.node_player" in child.cmdline() for child in children)
            endings = [os.pidfd_open(child.pid) for child in children]
            starter.send_signal(how)
            assert starter.wait(_PATIENCE_SECONDS) == status
        finally:
            starter.kill()
    for ending in endings:
        assert select.select([ending], [], [], _PATIENCE_SECONDS)[0], "a process is still there"
        os.close(ending)
    assert not folder.exists()
