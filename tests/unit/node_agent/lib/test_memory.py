"""Memory that is not used goes back to the kernel: the C library is asked to release it now and then, and has all objects.

What the agent never needs is not loaded: docstrings. Code that its start alone needed is not mapped any more.
"""

import asyncio
import compileall
import ctypes
import gc
import mmap
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


@virtual_time
async def test_it_is_asked_every_half_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    began, at = loop.time(), list[tuple[int, int]]()
    library = SimpleNamespace(malloc_trim=lambda pad: at.append((round(loop.time() - began), pad)))
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    monkeypatch.setattr(memory, "in_thread", _at_once)
    monkeypatch.setattr(memory, "unmap_code", lambda: at.append((round(loop.time() - began), -1)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(200):
            await memory.give_back(lambda: False)
    assert at == [(seconds, what) for seconds in (30, 60, 90, 120, 150, 180) for what in (-1, 0)]


class _Ring:
    """Garbage that counting references does not find."""

    def __init__(self) -> None:
        self.itself = self


@virtual_time
@pytest.mark.parametrize("has_ended_much", [True, False])
async def test_garbage_of_what_has_ended_is_collected_first(
    monkeypatch: pytest.MonkeyPatch, *, has_ended_much: bool
) -> None:
    monkeypatch.setattr(memory, "in_thread", _at_once)
    monkeypatch.setattr(memory, "unmap_code", lambda: None)
    monkeypatch.setattr(memory, "MOST_SEARCHED", 10**9)
    gc.disable()
    try:
        ring, left = weakref.ref(_Ring()), list[bool]()
        assert ring() is not None
        library = SimpleNamespace(malloc_trim=lambda pad: left.append(ring() is not None))
        monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(40):
                await memory.give_back(lambda: has_ended_much)
    finally:
        gc.enable()
    assert left == [not has_ended_much]


@virtual_time
async def test_among_too_many_objects_garbage_waits_until_there_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "in_thread", _at_once)
    monkeypatch.setattr(memory, "unmap_code", lambda: None)
    began, at, asked = asyncio.get_running_loop().time(), list[int](), iter([True, *[False] * 9])

    def now() -> int:
        return round(asyncio.get_running_loop().time() - began)

    monkeypatch.setattr(gc, "get_objects", lambda: range(memory.MOST_SEARCHED + (now() < 100)))
    monkeypatch.setattr(gc, "collect", lambda: at.append(now()))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(200):
            await memory.give_back(lambda: next(asked))
    assert at == [120]


@virtual_time
async def test_no_name_is_kept_that_was_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "in_thread", _at_once)
    monkeypatch.setattr(memory, "unmap_code", lambda: None)
    # as C code makes one for each lookup
    name = "".join(("it", "self"))
    assert hasattr(_Ring(), name)
    references = sys.getrefcount(name)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(40):
            await memory.give_back(lambda: False)
    assert sys.getrefcount(name) == references - 1


async def _at_once(run: Callable[[], object]) -> object:
    return run()


@virtual_time
async def test_where_the_library_has_no_such_function_code_alone_is_unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    unmapped = list[bool]()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace())
    monkeypatch.setattr(memory, "unmap_code", lambda: unmapped.append(True))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(200):
            await memory.give_back(lambda: False)
    assert unmapped == [True] * 6


def test_the_agent_has_objects_from_the_c_library_in_the_same_process_with_the_same_arguments() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES}
    command = [sys.executable, "-X", "utf8", "-c", _PROGRAM.format(names=_NAMES), "run", "--node-name", "a b"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        shown = process.stdout.read().decode().split()
    settings = ["malloc", "131072", _NO_THREADS_CACHE]
    assert shown == [*settings, str(process.pid), "-X", "run", "--node-name", "a", "b"]


@pytest.mark.parametrize(
    ("chosen", "then"),
    [
        ({"MALLOC_MMAP_THRESHOLD_": "65536"}, ["malloc", "65536", _NO_THREADS_CACHE]),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}, ["malloc", "131072", "glibc.malloc.arena_max=1"]),
        ({"PYTHONMALLOC": "pymalloc"}, ["pymalloc", "None", "None"]),
    ],
)
def test_another_choice_stays(chosen: dict[str, str], then: list[str]) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in _NAMES} | chosen
    command = [sys.executable, "-c", _PROGRAM.format(names=_NAMES)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, encoding="utf-8")
    assert done.stdout.split()[:3] == then


_LIBRARY = """\
7f3735600000-7f3735667000 r-xp 00002000 fe:00 326694                     /usr/lib/a library.so
Size:                412 kB
Rss:                  16 kB
Anonymous:             {own} kB
AnonHugePages:         8 kB
Swap:                  {swapped} kB
SwapPss:               8 kB
VmFlags: rd ex mr mw me
"""
_OTHERS = """\
55ba24826000-55ba24828000 {rights} 00000000 fe:00 247278                     /usr/bin/python3
Anonymous:             0 kB
Swap:                  0 kB
7ffd4a5c2000-7ffd4a5c4000 r-xp 00000000 00:00 0                          [vdso]
Anonymous:             0 kB
Swap:                  0 kB
7ffd4a5d2000-7ffd4a5d4000 r-xp 00000000 00:00 0
Anonymous:             0 kB
Swap:                  0 kB
"""


@pytest.mark.parametrize("rights", ["r--p", "rw-p", "r-xs", "rwxp"])
def test_code_of_files_alone_is_unmapped(rights: str) -> None:
    """What is relocated or written is not as in the file."""
    mappings = _OTHERS.format(rights=rights) + _LIBRARY.format(own=0, swapped=0) + _OTHERS.format(rights=rights)
    assert [*memory.code_of_files(mappings)] == [(0x7F3735600000, 0x67000)]


@pytest.mark.parametrize(("own", "swapped"), [(4, 0), (0, 4), (10, 0), (0, 12)])
def test_code_that_somebody_has_changed_stays(own: int, swapped: int) -> None:
    mappings = _LIBRARY.format(own=own, swapped=swapped) + _LIBRARY.format(own=0, swapped=0)
    assert len([*memory.code_of_files(mappings)]) == 1


_CODE_IN_USE = r"""
import re
import grpc
from nodedevice_agent.lib import memory
def code():
    mappings = open("/proc/self/smaps").read()
    return sum(int(kb) for kb in re.findall(r" r-xp .* /.*\n(?:.*\n){3}Rss: +([0-9]+) kB", mappings))
before = code()
memory.unmap_code()
after = code()
print(before, after, grpc.StatusCode.OK.name)
"""


def test_a_program_goes_on_with_less_of_its_code_mapped() -> None:
    done = subprocess.run([sys.executable, "-c", _CODE_IN_USE], check=True, capture_output=True, encoding="utf-8")
    before, after, name = done.stdout.split()
    assert name == "OK"
    assert 0 < int(after) < int(before) / 2


class Madvise:
    """The C library's function. given: what it was called with."""

    argtypes: tuple[object, ...] = ()

    def __init__(self) -> None:
        self.given: list[tuple[int, ...]] = []

    def __call__(self, *given: int) -> int:
        self.given.append(given)
        return -1


def test_each_mapping_is_given_back_whatever_its_name_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    madvise = Madvise()
    other = _LIBRARY.replace("7f37356", "7f47356").format(own=0, swapped=0)
    (tmp_path / "smaps").write_bytes(
        _LIBRARY.format(own=0, swapped=0).encode().replace(b"a library", b"\xff") + other.encode()
    )
    monkeypatch.setattr(memory, "_MAPPINGS", tmp_path / "smaps")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(madvise=madvise))
    memory.unmap_code()
    assert madvise.given == [(address, 0x67000, mmap.MADV_DONTNEED) for address in (0x7F3735600000, 0x7F4735600000)]
    # an address has more bits than an int of the C library
    assert madvise.argtypes == (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def test_without_proc_nothing_is_unmapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(memory, "_MAPPINGS", tmp_path / "none")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("called"))
    memory.unmap_code()


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
