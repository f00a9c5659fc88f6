"""Memory that is not used goes back to the kernel: the C library is asked to release it now and then, and has all objects.

What the agent never needs is not loaded: docstrings.
"""

import asyncio
import compileall
import ctypes
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from nodedevice_agent import __main__
from nodedevice_agent.lib import memory

from tests.fakes.virtual_time import virtual_time

_PROGRAM = """
import os, sys
from nodedevice_agent import __main__
__main__._in_less_memory()
print(*map(os.environ.get, {names!r}), os.getpid(), sys.orig_argv[1], *sys.argv[1:])
"""
_NAMES = ("PYTHONMALLOC", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
_NO_THREADS_CACHE = "glibc.malloc.tcache_count=0:glibc.malloc.arena_max=1"


_COMMANDS = """
import os, sys
import nodedevice_agent
def main():
    print(os.environ.get("PYTHONMALLOC"), sys.flags.optimize, nodedevice_agent.__doc__, sep="\\n")
"""


async def _at_once(run: Callable[[], object]) -> object:
    return run()


async def _released(
    monkeypatch: pytest.MonkeyPatch, library: SimpleNamespace, seconds: float, has_ended_much: bool = False
) -> None:
    """For so long, from this C library."""
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(memory, "in_thread", _at_once)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await memory.release(lambda: has_ended_much)


@virtual_time
async def test_it_is_asked_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began, at = loop.time(), list[tuple[int, int]]()
    library = SimpleNamespace(malloc_trim=lambda pad: at.append((round(loop.time() - began), pad)))
    await _released(monkeypatch, library, 200)
    assert at == [(seconds, 0) for seconds in (30, 60, 90, 120, 150, 180)]


class _Ring:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.itself = self


@virtual_time
@pytest.mark.parametrize("has_ended_much", [True, False])
async def test_garbage_of_what_ended_is_collected(monkeypatch: pytest.MonkeyPatch, *, has_ended_much: bool) -> None:
    monkeypatch.setattr(memory, "MOST_SEARCHED", 10**9)
    gc.disable()
    try:
        ring, left = weakref.ref(_Ring()), list[bool]()
        assert ring() is not None
        library = SimpleNamespace(malloc_trim=lambda pad: left.append(ring() is not None))
        await _released(monkeypatch, library, 40, has_ended_much)
    finally:
        gc.enable()
    assert left == [not has_ended_much]


@virtual_time
async def test_another_library_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    await _released(monkeypatch, SimpleNamespace(), 200)


def _environment(**chosen: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in (*_NAMES, "PYTHONOPTIMIZE")} | chosen


def _printed(*arguments: str, **chosen: str) -> str:
    """What Python prints that is started with these."""
    command, environment = [sys.executable, *arguments], _environment(**chosen)
    return subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8").stdout


def test_the_agent_has_objects_from_the_c_library_in_the_same_process_with_the_same_arguments() -> None:
    command = [sys.executable, "-X", "utf8", "-c", _PROGRAM.format(names=_NAMES), "run", "--node-name", "a b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment()) as process:
        assert process.stdout is not None
        shown = process.stdout.read().decode().split()
    assert shown == ["malloc", "131072", _NO_THREADS_CACHE, str(process.pid), "-X", "run", "--node-name", "a", "b"]


@pytest.mark.parametrize(
    ("chosen", "then"),
    [
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, ["malloc", "65536", _NO_THREADS_CACHE]),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, ["malloc", "131072", "glibc.malloc.arena_max=1"]),
        ({"PYTHONMALLOC": "pymalloc"}, ["pymalloc", "None", "None"]),
    ],
)
def test_another_choice_stays(chosen: dict[str, str], then: list[str]) -> None:
    assert _printed("-c", _PROGRAM.format(names=_NAMES), **chosen).split()[:3] == then


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A package of the agent's name whose commands say how they were started, as an image has it: nothing is compiled yet."""
    package = tmp_path / "nodedevice_agent"
    (package / "cli").mkdir(parents=True)
    (package / "__init__.py").write_text('"""The agent."""\n')
    (package / "__main__.py").write_bytes(Path(__main__.__file__).read_bytes())
    (package / "cli" / "__init__.py").touch()
    (package / "cli" / "run.py").write_text(_COMMANDS)
    return tmp_path


@pytest.mark.parametrize(
    ("levels", "arguments", "started"),
    [
        pytest.param((0, 2), ("run", "--node-name", "a"), ["malloc", "2", "None"], id="agent without docstrings"),
        pytest.param((0,), ("run",), ["malloc", "0", "The agent."], id="nothing is compiled for it"),
        pytest.param((0, 2), ("run", "--help"), ["None", "0", "The agent."], id="help"),
        pytest.param((0, 2), ("discover",), ["None", "0", "The agent."], id="another command"),
    ],
)
def test_the_agent_runs_without_docstrings_if_it_is_compiled_so(
    site: Path, levels: tuple[int, ...], arguments: tuple[str, ...], started: list[str]
) -> None:
    for level in levels:
        compileall.compile_dir(site, quiet=1, optimize=level)
    assert _printed("-m", "nodedevice_agent", *arguments, PYTHONPATH=str(site)).splitlines() == started
