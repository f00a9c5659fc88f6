"""Memory that is not used goes back to the kernel: the C library is asked to release it now and then, and has all objects.

What the agent never needs is not loaded: docstrings.
"""

import asyncio
import compileall
import ctypes
import os
import subprocess
import sys
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
print(os.environ["PYTHONMALLOC"], os.getpid(), sys.orig_argv[1], *sys.argv[1:])
"""


_COMMANDS = """
import os, sys
import nodedevice_agent
def main():
    print(os.environ.get("PYTHONMALLOC"), sys.flags.optimize, nodedevice_agent.__doc__, sep="\\n")
"""


@virtual_time
async def test_it_is_asked_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began, at = loop.time(), list[tuple[int, int]]()
    library = SimpleNamespace(malloc_trim=lambda pad: at.append((round(loop.time() - began), pad)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(memory, "in_thread", _at_once)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await memory.give_back()
    assert at == [(30, 0), (60, 0), (90, 0)]


async def _at_once(run: Callable[[], object]) -> object:
    return run()


async def test_where_the_library_has_no_such_function_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    await memory.give_back()


def test_the_agent_has_objects_from_the_c_library_in_the_same_process_with_the_same_arguments() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONMALLOC"}
    command = [sys.executable, "-X", "utf8", "-c", _PROGRAM, "run", "--node-name", "a b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        shown = process.stdout.read().decode().split()
    assert shown == ["malloc", str(process.pid), "-X", "run", "--node-name", "a", "b"]


def test_another_choice_stays() -> None:
    environment = {**os.environ, "PYTHONMALLOC": "pymalloc"}
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], env=environment, check=True, capture_output=True, encoding="utf-8"
    )
    assert done.stdout.split()[0] == "pymalloc"


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


def _compile(site: Path, *levels: int) -> None:
    for level in levels:
        compileall.compile_dir(site, quiet=1, optimize=level)


def _started(site: Path, *arguments: str) -> list[str]:
    names = ("PYTHONMALLOC", "PYTHONOPTIMIZE")
    environment = {name: value for name, value in os.environ.items() if name not in names} | {"PYTHONPATH": str(site)}
    command = [sys.executable, "-m", "nodedevice_agent", *arguments]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8")
    return done.stdout.splitlines()


def test_where_the_modules_are_compiled_without_docstrings_the_agent_runs_without_them(site: Path) -> None:
    _compile(site, 0, 2)
    assert _started(site, "run", "--node-name", "a") == ["malloc", "2", "None"]


def test_where_they_are_not_none_is_compiled_for_it(site: Path) -> None:
    _compile(site, 0)
    assert _started(site, "run") == ["malloc", "0", "The agent."]


@pytest.mark.parametrize("arguments", [("run", "--help"), ("run", "-h"), ("discover",), ("--help",)])
def test_commands_of_people_have_their_texts(site: Path, arguments: tuple[str, ...]) -> None:
    _compile(site, 0, 2)
    assert _started(site, *arguments) == ["None", "0", "The agent."]
