"""What the README promises of `make demo`, `make up` and `make down`, run as a person would run it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cluster import lent_things
from tests.cluster.control_plane import ControlPlane
from tests.cluster.current import CurrentCluster
from tests.cluster.lent_marks import LABEL, Mark

_ROOT = Path(__file__).parents[2]
_DEMO = [sys.executable, "-u", "-m", "tests.e2e.demo"]
_LOCAL = [sys.executable, "-m", "tests.cluster.local"]
_ELSEWHERE = Mark("0123456789ab", 1, 1)


@pytest.fixture(autouse=True)
def built(control_plane: ControlPlane) -> None:
    """With the session's control plane up, its programs are built: nothing here waits for that."""


@pytest.fixture
def own_temp(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of this test's own, short enough for sockets, in which nothing may be left behind."""
    folder = Path("/tmp") / f"nd-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    left = list(folder.iterdir())
    assert not left
    folder.rmdir()


def test_demo_does_the_whole_job(own_temp: Path) -> None:
    done = subprocess.run(_DEMO, cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for told in (
        "$ kubectl get nodedevices",
        "$ kubectl get poddevices -A",
        "Insufficient example.com/gpu",
        "capacity of node-a went from 4 to 3 in",
        "back to 4 in",
        "4 devices held before and after",
        "DeviceUnhealthy",
        "all free",
    ):
        assert told in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_ctrl_c_leaves_nothing_behind(own_temp: Path) -> None:
    with subprocess.Popen(_DEMO, cwd=_ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "operator and agents are ready" in line:
                break
        started = psutil.Process(demo.pid).children(recursive=True)
        assert len(started) >= 8
        os.killpg(demo.pid, signal.SIGINT)
        rest = demo.stdout.read()
        assert demo.wait(timeout=30) == 130
    assert "everything that was started has ended" in rest
    assert not [process for process in started if process.is_running()]


def test_ctrl_c_ends_what_is_coming_up(own_temp: Path) -> None:
    with subprocess.Popen([*_LOCAL, "up"], cwd=_ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True) as up:
        assert up.stderr is not None
        assert any("kube-apiserver ready" in line for line in up.stderr)
        started = psutil.Process(up.pid).children(recursive=True)
        assert len(started) >= 3
        os.killpg(up.pid, signal.SIGINT)
        rest = up.stderr.read()
        assert up.wait(timeout=30) == 130
    assert "everything that was started has ended" in rest
    assert not [process for process in started if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    """Not one that has ended and that nobody has asked about yet."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_up_stays_and_down_ends_it(own_temp: Path) -> None:
    first = subprocess.Popen([*_LOCAL, "up"], cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert first.stderr is not None
        assert first.stderr.readline().strip(), "nothing was said while it came up"
        up = subprocess.run([*_LOCAL, "up"], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert up.returncode == 0, up.stdout + up.stderr
        assert first.communicate(timeout=30)[0] == up.stdout
        exports = [line.removeprefix("export ") for line in up.stdout.splitlines() if line.startswith("export ")]
        kubeconfig = exports[0].removeprefix("KUBECONFIG=")
        folder = exports[1].removeprefix("PATH=").partition(":")[0]
        listed = subprocess.run(
            [f"{folder}/kubectl", "--kubeconfig", kubeconfig, "get", "nodedevices", "-o", "name"],
            capture_output=True,
            text=True,
            check=True,
        )
        assert len(listed.stdout.split()) == 3
        again = subprocess.run([*_LOCAL, "up"], cwd=_ROOT, capture_output=True, text=True, timeout=10, check=False)
        assert again.stdout == up.stdout
    finally:
        down = subprocess.run([*_LOCAL, "down"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (down.returncode, down.stdout) == (0, "the local cluster is down\n")
    once_more = subprocess.run([*_LOCAL, "down"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (once_more.returncode, once_more.stdout) == (0, "no local cluster is up\n")


@pytest.fixture(scope="module")
def theirs() -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="nd-theirs-") as folder, ControlPlane.start(Path(folder) / "c") as made:
        yield made


class TestTheClusterYouHave:
    """CLUSTER=current, tried on a control plane that stands for kind or minikube."""

    @staticmethod
    def _objects(cluster: ControlPlane) -> set[str]:
        """Whatever a visitor could leave behind, by kind and name."""
        kinds = (
            "nodes,namespaces,crds,clusterroles,clusterrolebindings,validatingadmissionpolicies,"
            "validatingadmissionpolicybindings,mutatingadmissionpolicies,mutatingadmissionpolicybindings"
        )
        everywhere = cluster.kubectl(
            "get", "serviceaccounts,configmaps,leases,roles,rolebindings,pods", "-A", "-o", "name"
        )
        return {*cluster.kubectl("get", kinds, "-o", "name").split(), *everywhere.split()}

    @staticmethod
    def _environment(kubeconfig: Path) -> dict[str, str]:
        return {**os.environ, "CLUSTER": "current", "KUBECONFIG": str(kubeconfig)}

    def _demo(self, kubeconfig: Path) -> "subprocess.CompletedProcess[str]":
        environment = self._environment(kubeconfig)
        return subprocess.run(
            _DEMO, cwd=_ROOT, capture_output=True, text=True, timeout=240, check=False, env=environment
        )

    def _killed_demo(self, kubeconfig: Path) -> int:
        """Its process ID; all that it brought stays."""
        environment = self._environment(kubeconfig)
        with subprocess.Popen(_DEMO, cwd=_ROOT, stdout=subprocess.PIPE, text=True, env=environment) as demo:
            assert demo.stdout is not None
            assert any("operator and agents are ready" in line for line in demo.stdout)
            started = psutil.Process(demo.pid).children(recursive=True)
            demo.kill()
        psutil.wait_procs(started, timeout=30)
        return demo.pid

    def test_demo_uses_it_and_leaves_it_as_it_was(self, own_temp: Path, theirs: ControlPlane) -> None:
        before = self._objects(theirs)
        done = self._demo(theirs.admin_kubeconfig)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "using the cluster of the context nodedevice-test" in done.stdout
        assert done.stdout.splitlines()[-1].startswith("OK: ")
        assert self._objects(theirs) == before

    def test_what_a_killed_one_left_is_taken_away_by_the_next(
        self, theirs: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = self._objects(theirs)
        with tempfile.TemporaryDirectory(prefix="nd-", ignore_cleanup_errors=True) as short:
            monkeypatch.setenv("TMPDIR", short)
            killed = self._killed_demo(theirs.admin_kubeconfig)
        assert {"node/node-a", "namespace/nodedevice-system"} <= self._objects(theirs) - before
        monkeypatch.setenv("KUBECONFIG", str(theirs.admin_kubeconfig))
        said: list[str] = []
        with CurrentCluster.start(tmp_path / "c", said.append):
            assert self._objects(theirs) == before
        assert said[0].startswith(f"taking away what process {killed} left when it was killed: Node/node-a")

    def test_what_somebody_else_brought_is_left_to_him(self, own_temp: Path, theirs: ControlPlane) -> None:
        before = self._objects(theirs)
        for mark, said in ((Mark.own(), f"process {os.getpid()} of this machine"), (_ELSEWHERE, "another machine")):
            theirs.kubectl("create", "namespace", "nodedevice-system")
            theirs.kubectl("label", "namespace", "nodedevice-system", f"{LABEL}={mark}")
            done = self._demo(theirs.admin_kubeconfig)
            assert (done.returncode, said in done.stdout, done.stderr) == (1, True, ""), done.stdout
            for command in lent_things.commands(mark):
                assert (command in done.stdout) == (mark == _ELSEWHERE)
                theirs.kubectl(*command.split()[1:])
            assert self._objects(theirs) == before

    def test_a_node_of_that_name_is_left_alone(self, own_temp: Path, theirs: ControlPlane) -> None:
        theirs.add_node("node-b")
        before = self._objects(theirs)
        done = self._demo(theirs.admin_kubeconfig)
        assert (done.returncode, done.stderr) == (1, "")
        assert "has a Node node-b already, which is left alone" in done.stdout
        assert self._objects(theirs) == before
        theirs.remove_node("node-b")

    def test_what_is_there_already_is_left_alone(self, own_temp: Path, theirs: ControlPlane) -> None:
        theirs.kubectl("create", "namespace", "nodedevice-system")
        done = self._demo(theirs.admin_kubeconfig)
        assert done.returncode == 1
        assert "has nodedevice already (nodedevice-system), and is left alone" in done.stdout
        assert "nodedevice-system" in theirs.kubectl("get", "namespaces", "-o", "name")
        theirs.kubectl("delete", "namespace", "nodedevice-system")

    @pytest.mark.parametrize(
        ("cluster", "content", "said"),
        [
            ("current", "", "no current kubeconfig"),
            ("current", "{{{", "no current kubeconfig"),
            ("kind", "", "CLUSTER is 'kind'"),
        ],
    )
    def test_no_cluster_to_use(self, own_temp: Path, tmp_path: Path, cluster: str, content: str, said: str) -> None:
        kubeconfig = tmp_path / "config"
        kubeconfig.write_text(content)
        environment = {**os.environ, "CLUSTER": cluster, "KUBECONFIG": str(kubeconfig)}
        done = subprocess.run(
            _DEMO, cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False, env=environment
        )
        assert done.returncode == 1
        assert said in done.stdout
        assert done.stderr == ""
