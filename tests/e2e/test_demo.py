"""What the pages promise of `make demo` (with GPU=, too), and that Ctrl-C ends it and `make up`, run as a person would run it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.processes.processes import is_alive

_ROOT = Path(__file__).parents[2]
_DEMO = [sys.executable, "-u", "-m", "hack.demo"]
_UP = [sys.executable, "-m", "tests.cluster.local.local", "up"]


@pytest.fixture(autouse=True)
def built(control_plane: ControlPlane) -> None:
    """With the session's control plane up, its programs are built: nothing here waits for that."""


def _demo(*name: str) -> str:
    """What a demo prints that ends well."""
    done = subprocess.run([*_DEMO, *name], cwd=_ROOT, capture_output=True, text=True, timeout=180, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].startswith("OK: ")
    return done.stdout


_SHOWN = {
    "": (
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
    ),
    "dgx-h100": (
        "NVIDIA H100 80GB HBM3",
        "18 NVLinks",
        "capacity of gpu-node is 7 after",
        "is 8 after",
        "ResetRequired: the driver requests a reset of the GPU, after Xid 109",
        "RowRemapFailed: a row",
        "FabricNotReady: its",
    ),
    "mig-a100": (
        "nvidia.com/mig-3g.40gb=1",
        "nvidia.com/mig-1g.10gb: capacity of gpu-node is 6 after",
        "nvidia.com/mig-2g.20gb: capacity of gpu-node is 2 after",
        ": InOtherUse",
        "nvidia.com/mig-2g.20gb: capacity of gpu-node is 3 after",
    ),
    "t4-pair": ("which the pod holds", "1 of 2 are healthy", "2 of 2 are healthy"),
    "mismatch": ("gpu-node.nvidia.com.gpu", "are of different versions: reboot"),
    "none": ("the nvml plugin is idle", "No resources found"),
}


@pytest.mark.parametrize("name", _SHOWN, ids=lambda name: name or "without a name")
def test_a_demo_shows_what_its_page_promises(own_temp: Path, name: str) -> None:
    printed = _demo(*filter(None, [name]))
    assert [words for words in _SHOWN[name] if words not in printed] == []
    assert name or "jsonpath" not in printed


def test_a_demo_of_watching_only_names_its_page(own_temp: Path) -> None:
    printed = _demo("observe")
    for expected in (
        "has registered example.com/null with the kubelet",
        "node-a.example.com.null",
        "kubelet    kubelet",
        "nodedevice-demo   infer",
        "capacity and the pod's spec are the same as before",
    ):
        assert expected in printed
    assert not {"nodedevice-agent", "nodedevice-operator"} & {*printed.partition("who wrote them: ")[2].split(", ")}
    page = printed.rpartition("on a node of yours: ")[2].partition(" ")[0]
    assert f"\n  {page}\n" in printed
    assert (_ROOT / page).is_file()


@pytest.mark.parametrize(
    ("command", "moment", "processes"),
    [(_DEMO, "operator and agents are ready", 8), (_UP, "kube-apiserver ready", 3)],
    ids=["a demo", "what is coming up"],
)
def test_ctrl_c_leaves_nothing_behind(own_temp: Path, command: list[str], moment: str, processes: int) -> None:
    with subprocess.Popen(
        command, cwd=_ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        assert any(moment in line for line in running.stdout)
        started = psutil.Process(running.pid).children(recursive=True)
        assert len(started) >= processes
        os.killpg(running.pid, signal.SIGINT)
        rest = running.stdout.read()
        assert running.wait(timeout=60) == 130
    assert "everything that was started has ended" in rest
    assert not [process for process in started if is_alive(process)]


def test_pods_share_gpus_by_memory() -> None:
    printed = _demo("shares")
    chosen, _, rest = printed.partition("One more asks for 20.")
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
