"""In which order the product comes up; marks in somebody's cluster, and what they show of the process that left them."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from hack.cluster.cluster import Cluster
from hack.cluster.local import stack
from hack.cluster.local.owner_label import Holder, Mark


class _Stopped(Exception):
    """As far as these tests go."""


def test_what_is_built_is_built_before_anything_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def find(names: Iterable[str], progress: Callable[[str], None]) -> None:
        built.extend(names)

    def open_cluster(folder: Path, progress: Callable[[str], None]) -> Cluster:
        raise _Stopped

    monkeypatch.setattr(stack, "find", find)
    monkeypatch.setattr(stack, "installed_manifests", lambda values: [])
    with pytest.raises(_Stopped):
        stack.Stack.start(tmp_path, open_cluster=open_cluster)
    assert built == ["helm"]


def test_it_comes_back_out_of_a_label() -> None:
    own = Mark.own()
    assert Mark.parse(str(own)) == own
    assert len(str(own)) <= 63, "a label's value has 63 characters at most"


@pytest.mark.parametrize(
    "value", ["", "kwok", "demo", "demo.x.1.2", "demo.0123456789ab.0.2", "demo.0123456789ab.1.2.3"]
)
def test_a_label_of_somebody_else(value: str) -> None:
    assert Mark.parse(value) is None


def test_its_maker_runs_and_ends() -> None:
    program = "from hack.cluster.local.owner_label import Mark; print(Mark.own(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as maker:
        assert maker.stdout is not None
        mark = Mark.parse(maker.stdout.readline().strip())
        assert mark is not None
        assert mark.pid == maker.pid
        assert mark.holder() is Holder.RUNS
        maker.kill()
    assert mark.holder() is Holder.HAS_ENDED


def test_another_process_of_that_id_is_not_its_maker() -> None:
    own = Mark.own()
    assert own.holder() is Holder.RUNS
    assert Mark(own.machine, own.pid, own.started + 1).holder() is Holder.HAS_ENDED


def test_another_machine_or_boot_proves_nothing() -> None:
    own = Mark.own()
    assert Mark("0123456789ab", own.pid, own.started).holder() is Holder.IS_ELSEWHERE


# stops where the commands are imported, for as long as a test needs
_SLOW_IMPORT = """
import runpy, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            print("importing", flush=True)
            time.sleep(600)

sys.meta_path.insert(0, Slow())
runpy.run_module(sys.argv[1].rpartition(".")[0], run_name="__main__")
"""


@pytest.mark.parametrize("imported", ["hack.cluster.local.local", "hack.demo.demo"], ids=["make up", "make demo"])
def test_ctrl_c_while_it_is_imported_prints_nothing(imported: str) -> None:
    command = [sys.executable, "-c", _SLOW_IMPORT, imported]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        assert up.stdout is not None
        assert up.stdout.readline() == b"importing\n"
        up.send_signal(signal.SIGINT)
        assert up.communicate()[1] == b""
    assert up.returncode == -signal.SIGINT
