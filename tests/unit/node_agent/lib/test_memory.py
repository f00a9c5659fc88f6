"""Memory that is not used goes back to the kernel: the C library is asked to release it now and then, and has all objects."""

import asyncio
import ctypes
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from nodedevice_agent.lib import memory

from tests.fakes.virtual_time import virtual_time

_PROGRAM = """
import os, sys
from nodedevice_agent import __main__
__main__._with_allocator_of_c()
print(os.environ["PYTHONMALLOC"], os.getpid(), sys.orig_argv[1], *sys.argv[1:])
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
