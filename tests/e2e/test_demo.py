"""What the pages promise of `make demo` (with GPU=, too), `make up` and `make down`, run as a person would run it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.control_plane.control_plane import ControlPlane

_ROOT = Path(__file__).parents[2]
_DEMO = [sys.executable, "-u", "-m", "hack.demo"]
_LOCAL = [sys.executable, "-m", "tests.cluster.local.local"]


@pytest.fixture(autouse=True)
def built(control_plane: ControlPlane) -> None:
    """With the session's control plane up, its programs are built: nothing here waits for that."""


def test_demo_does_the_whole_job(own_temp: Path) -> None:
    done = subprocess.run(_DEMO, cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for expected in (
        "$ kubectl get nodedevices",
        "$ kubectl get poddevices -A",
        "Insufficient example.com/gpu",
        "capacity of node-a went from 4 to 3 in",
        "back to 4 in",
        "its nodes have no kubelet: this demo reports them Ready and their pods Running",
        "$ kubectl nodedevice\n",
        "$ kubectl nodedevice devices",
        "$ kubectl nodedevice why pod one-too-many",
        "$ kubectl nodedevice cordon node-a --device gpu-",
        "$ kubectl nodedevice uncordon node-a --device gpu-",
        "$ kubectl nodedevice holders -A",
        "$ kubectl get events -A --field-selector reason=DevicesCordoned",
        "cordoned by",
        "4 devices held before and after",
        "DeviceUnhealthy",
        "all free",
    ):
        assert expected in done.stdout
    assert "jsonpath" not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_a_demo_of_watching_only_names_its_page(own_temp: Path) -> None:
    done = subprocess.run([*_DEMO, "observe"], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    for expected in (
        "has registered example.com/null with the kubelet",
        "node-a.example.com.null",
        "kubelet    kubelet",
        "nodedevice-demo   infer",
        "capacity and the pod's spec are the same as before",
    ):
        assert expected in done.stdout
    assert not {"nodedevice-agent", "nodedevice-operator"} & {*done.stdout.partition("who wrote them: ")[2].split(", ")}
    *_, named, _, verdict = done.stdout.splitlines()
    assert named.strip() == "docs/watch-only.md"
    assert (_ROOT / named.strip()).is_file()
    assert verdict.startswith("OK: ")


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
        assert demo.wait(timeout=60) == 130
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
        assert up.wait(timeout=60) == 130
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
        assert first.stderr.readline().strip(), "nothing was printed while it came up"
        up = subprocess.run([*_LOCAL, "up"], cwd=_ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert up.returncode == 0, up.stdout + up.stderr
        assert first.communicate(timeout=60)[0] == up.stdout
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
        again = subprocess.run([*_LOCAL, "up"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
        assert again.stdout == up.stdout
    finally:
        down = subprocess.run([*_LOCAL, "down"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (down.returncode, down.stdout) == (0, "the local cluster is down\n")
    once_more = subprocess.run([*_LOCAL, "down"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (once_more.returncode, once_more.stdout) == (0, "no local cluster is up\n")


def test_gpus_from_the_driver_to_a_pod_and_back() -> None:
    done = subprocess.run([*_DEMO, "dgx-h100"], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    words = (
        "ResetRequired: the driver requests a reset of the GPU, after Xid 109",
        "RowRemapFailed: a row",
        "FabricNotReady: its",
    )
    for expected in ("NVIDIA H100 80GB HBM3", "18 NVLinks", "capacity of gpu-node is 7 after", "is 8 after", *words):
        assert expected in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_pods_share_gpus_by_memory() -> None:
    done = subprocess.run([*_DEMO, "shares"], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    chosen, _, rest = done.stdout.partition("One more asks for 20.")
    in_vain, _, rest = rest.partition("The same pod by the extender")
    pending, _, after = rest.partition("infer-7 ends")
    assert [chosen.count(f"infer-{number} wants ") for number in range(8)] == [1] * 8
    assert chosen.count("just as many") == 1
    assert chosen.count("too few") == 3
    assert chosen.count(" 14 of 78 free") == 2
    assert "NoDeviceFits (no device has 20 of aliyun.com/gpu-mem free; the most is 14)" in in_vain
    assert "nodedevice-scheduler " in pending
    assert "no device has 20 of aliyun.com/gpu-mem free; the most is 14" in pending
    assert "large wants 20: gpu-node, " in after
    assert " 10 of 78 free" in after
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_pods_get_mig_instances() -> None:
    done = subprocess.run([*_DEMO, "mig-a100"], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for expected in (
        "nvidia.com/mig-3g.40gb=1",
        "nvidia.com/mig-1g.10gb: capacity of gpu-node is 6 after",
        "nvidia.com/mig-2g.20gb: capacity of gpu-node is 2 after",
        ": InOtherUse",
        "nvidia.com/mig-2g.20gb: capacity of gpu-node is 3 after",
    ):
        assert expected in done.stdout
    assert done.stdout.splitlines()[-1].startswith("OK: ")


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        ("t4-pair", ["which the pod holds", "1 of 2 are healthy", "2 of 2 are healthy"]),
        ("mismatch", ["gpu-node.nvidia.com.gpu", "are of different versions: reboot"]),
        ("none", ["the nvml plugin is idle", "No resources found"]),
    ],
)
def test_a_machine_without_a_gpu_to_spare(machine: str, expected: list[str]) -> None:
    done = subprocess.run([*_DEMO, machine], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [words for words in expected if words not in done.stdout] == []
    assert done.stdout.splitlines()[-1].startswith("OK: ")


def test_an_unknown_machine_is_refused_with_those_there_are() -> None:
    done = subprocess.run([*_DEMO, "cray-1"], cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "dgx-h100" in done.stdout
