"""The first `make demo`, whose API server is still to be built: what a real agent shows meanwhile, and that nothing stays behind.

A stand-in for Go builds: it ends when the test lets it, and makes a program that starts the real API server.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from tests.cluster.build.binaries import find
from tests.cluster.control_plane.control_plane import ControlPlane
from tests.cluster.control_plane.layout import CONTROL_PLANE
from tests.cluster.processes.processes import is_alive

_ROOT = Path(__file__).parents[2]
_BUILT = "kube-apiserver"
_ALL_SHOWN = "It goes on until the programs are there"
# while it is being built, and afterwards
_BEFORE = ("building kube-apiserver", "Meanwhile", "A device plugin of somebody else", "gpu-3 breaks", _ALL_SHOWN)
_AFTER = ("now all of it, with an API server", "its nodes have no kubelet", "chart and nodes are in")
_GO = """\
#!/bin/sh
[ "$1" = env ] && {{ echo go1.99.1; exit; }}
while [ "$1" != -o ]; do shift; done
touch "$2"
until [ -e {finish} ]; do sleep 0.1; done
{ending}
printf '#!/bin/sh\\nexec {program} "$@"\\n' > "$2"; chmod +x "$2"
"""


class FirstDemo:
    """finish: lets the build end. cache: of programs."""

    def __init__(self, process: "subprocess.Popen[str]", finish: Callable[[], None], cache: Path) -> None:
        assert process.stdout is not None
        self.process, self.finish, self.cache = process, finish, cache
        self._output: IO[str] = process.stdout
        self.printed = ""

    def until(self, words: str) -> None:
        """Read on to a line with these words."""
        for line in self._output:
            self.printed += line
            if words in line:
                return
        raise AssertionError(f"{words!r} was not printed: {self.printed}")

    def end(self) -> int:
        self.printed += self._output.read()
        return self.process.wait(timeout=120)


@pytest.fixture
def start(
    control_plane: ControlPlane, own_temp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., FirstDemo]]:
    """Starts the demo where all but the API server is built; with the session's control plane up it really is."""
    assets, finish, started = tmp_path / "assets", tmp_path / "finish", list["subprocess.Popen[str]"]()
    assets.mkdir()
    programs = find(CONTROL_PLANE)
    for name, path in programs.items():
        if name != _BUILT:
            (assets / name).symlink_to(path)
    for name, value in {"KUBEBUILDER_ASSETS": assets, "XDG_CACHE_HOME": tmp_path, "BINARIES": "build"}.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def start(ending: str = "") -> FirstDemo:
        go = tmp_path / "go"
        go.write_text(_GO.format(finish=finish, program=programs[_BUILT], ending=ending))
        go.chmod(0o755)
        process = subprocess.Popen(
            [sys.executable, "-u", "-m", "hack.demo"],
            cwd=_ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return FirstDemo(process, finish.touch, tmp_path / "nodedevice")

    yield start
    for process in started:
        with process:
            process.kill()


def test_an_agent_shows_what_it_has_until_all_is_built(start: Callable[..., FirstDemo]) -> None:
    demo = start()
    demo.until(_ALL_SHOWN)
    shown = demo.printed
    assert "example.com/gpu   gpu-0 gpu-1 gpu-2 gpu-3" in shown
    assert re.search(r"example.com/thermometer +dev-0 dev-1", shown)
    assert "api server: the lease cannot be renewed" in shown
    broken, _, recovered = shown.partition("$ nodedevice-agent simulate break ")[2].partition("simulate recover")
    assert re.search(r"example.com/gpu +gpu-0 gpu-1 gpu-2$", broken, re.MULTILINE)
    lists = r'device_lists_total{resource_name="example.com/gpu"} (\d)'
    [in_between], [at_last] = re.findall(lists, broken), re.findall(lists, recovered)
    assert int(at_last) > int(in_between)
    assert "gpu-3\tunhealthy" in broken
    assert "UNAVAILABLE: the pods of this node are not known yet" in recovered
    agent = next(child for child in _children(demo) if "nodedevice-agent" in " ".join(child.cmdline()))
    demo.finish()
    demo.until("now all of it, with an API server")
    assert not is_alive(agent)
    assert demo.end() == 0, demo.printed
    assert demo.printed.splitlines()[-1].startswith("OK: ")


@pytest.mark.parametrize("moment", [*_BEFORE, *_AFTER])
def test_it_can_be_ended_at_any_moment(start: Callable[..., FirstDemo], moment: str) -> None:
    """`own_temp`, which `start` has, finds files that are left behind."""
    demo = start()
    if moment in _AFTER:
        demo.until(_ALL_SHOWN)
        demo.finish()
    demo.until(moment)
    children = _children(demo)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert demo.end() == 130, demo.printed
    assert "everything that was started has ended" in demo.printed
    assert "failed" not in demo.printed
    assert not [child for child in children if is_alive(child)]
    if moment != _BEFORE[0]:
        # of a compiler that is just being started the next build removes it
        assert list(demo.cache.rglob("*unfinished*")) == []


def test_a_build_that_fails_ends_the_agent_too(start: Callable[..., FirstDemo]) -> None:
    demo = start(ending="echo no space left on device >&2; exit 1")
    demo.until(_ALL_SHOWN)
    children = _children(demo)
    demo.finish()
    assert demo.end() == 1
    assert "remedy: free about 6 GB" in demo.printed
    assert not [child for child in children if is_alive(child)]


def _children(demo: FirstDemo) -> list[psutil.Process]:
    found = psutil.Process(demo.process.pid).children(recursive=True)
    assert found
    return found
