"""No wall clock decides in the gate: on a machine that is slow or busy a test takes longer, and its verdict is the same.

A test waits for an event, or for a count of work that the code does; time that has to pass is the test's own `now`, or a loop's
that jumps. A time limit only ends a hang, and is a minute and more. What the gate runs: its test files, and the modules below
tests/ that they import. Findings: clocks.py beside this file.
"""

import ast
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from hack.ci.parts import gate_files, read
from tests.unit.clocks import Finding, findings
from tests.unit.sources import ROOT, shown, with_imports

# file::function, with * and ?: why time may pass there, or be compared
EXCEPTIONS: Final = {
    "tests/fakes/polling.py::until": "the one poll of all tests here: what it waits for decides",
    "tests/fakes/fault_proxy.py::FaultProxy._run": "after the tests, TLS connections are given time to close",
    "tests/fakes/fault_proxy.py::FaultProxy._stream": "a poll, in a thread of its own, of whether a test still holds a watch",
    "tests/unit/cli/test_transport.py::test_a_response_that_comes_ever_so_slowly*": "a limit that is always reached: it has no end",
    "tests/unit/common/test_api_transport.py::Drops.read": "virtual seconds",
    "tests/unit/kube/test_exec_plugin.py::test_one_that_hangs*": "a limit that is always reached, as the program never ends",
}


@cache
def in_gate() -> dict[str, list[Finding]]:
    """What is found in each of the gate's test files, and in what they and pytest import."""
    tests = gate_files(read())
    fixtures = {parent / "conftest.py" for file in tests for parent in file.parents if parent.is_relative_to(ROOT)}
    files = with_imports([*tests, *filter(Path.is_file, fixtures)], "tests")
    # tests/cluster starts real programs: a time limit there says that one of them does not start
    started = ROOT / "tests/cluster"
    return {shown(path): findings(module) for path, module in files if not path.is_relative_to(started)}


def test_no_verdict_in_the_gate_depends_on_a_clock() -> None:
    lines = [
        f"{file}:{found.line}: {found.function} {found.what}"
        for file, all_found in sorted(in_gate().items())
        for found in all_found
        if not any(fnmatchcase(f"{file}::{found.function}", pattern) for pattern in EXCEPTIONS)
    ]
    assert not lines, "\n".join(["wait for an event or a count of work instead; see tests/unit/test_clocks.py", *lines])


@pytest.mark.parametrize("pattern", EXCEPTIONS)
def test_an_exception_is_of_something(pattern: str) -> None:
    found = [f"{file}::{each.function}" for file, all_found in in_gate().items() for each in all_found]
    assert any(fnmatchcase(each, pattern) for each in found), "nothing there depends on a clock any more: remove it"


def test_the_gate_includes_what_its_tests_import() -> None:
    assert {
        "tests/unit/test_clocks.py",
        "tests/unit/sources.py",  # imported here
        "tests/conftest.py",  # imported by pytest
        "tests/fakes/sockets.py",  # imported by what tests import
    } <= in_gate().keys()


def found_in(source: str) -> list[str]:
    return [f"{finding.function} {finding.what}".strip() for finding in findings(ast.parse(source))]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("import time\ntime.sleep(1)", ["pauses"], id="time"),
        pytest.param("from time import sleep\nsleep(pause)", ["pauses"], id="imported name"),
        pytest.param("from time import sleep as rest\nrest(1)", ["pauses"], id="under another name"),
        pytest.param("import asyncio as aio\nawait aio.sleep(0.01)", ["pauses"], id="module under another name"),
        pytest.param("import asyncio\nawait asyncio.sleep(SETTLE)", ["pauses"], id="constant"),
        pytest.param("import anyio\nawait anyio.sleep(seconds=1)", ["pauses"], id="by keyword"),
        pytest.param("import asyncio, time\nasyncio.to_thread(time.sleep, 1)", ["pauses"], id="in a thread"),
        pytest.param("import asyncio\nasync def f():\n  await asyncio.sleep(0)", [], id="yields alone"),
        pytest.param("async def sleep(seconds): ...\nawait sleep(1)", [], id="of our own"),
        pytest.param(
            "import asyncio\nclass A:\n  async def f(self):\n    await asyncio.sleep(1)", ["A.f pauses"], id="method"
        ),
    ],
)
def test_pauses(source: str, expected: list[str]) -> None:
    assert found_in(source) == expected


TIMES = ["f compares times"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("took = time.monotonic() - began\nassert took < 5", TIMES, id="elapsed"),
        pytest.param("assert time.perf_counter() - began < 5", TIMES, id="read in place"),
        pytest.param("until = loop.time() + 1\nwhile now() < until: ...", TIMES, id="loop's clock"),
        pytest.param(
            "until = asyncio.get_running_loop().time() + 1\nwhile now() < until: ...", TIMES, id="running loop's"
        ),
        pytest.param("began, count = time.time(), 0\nassert began <= then", TIMES, id="in a tuple"),
        pytest.param("began, count = time.time(), 0\nassert count == 0", [], id="beside a time in a tuple"),
        pytest.param("began: float = process_time()\nassert 3 > end - began", TIMES, id="annotated"),
        pytest.param("if (now := datetime.now(UTC)) > end: ...", TIMES, id="in an expression"),
        pytest.param("assert abs(datetime.datetime.utcnow() - then) < hour", TIMES, id="date"),
        pytest.param("began = time.monotonic()\ndef g():\n  assert began < 5", ["f.g compares times"], id="nested"),
        pytest.param("def g():\n  began = time.monotonic()\nassert began < 5", [], id="a name of another function"),
        pytest.param("now = time.monotonic()\nassert decide(now=now)", [], id="handed on alone"),
        pytest.param("stopped = time.monotonic()\nassert stopped is None", [], id="identity"),
        pytest.param("assert clock.now() == 5", [], id="clock of our own"),
    ],
)
def test_comparisons_of_times(body: str, expected: list[str]) -> None:
    assert found_in("def f():\n" + "\n".join(f"  {line}" for line in body.splitlines())) == expected


SHORT = ["times out within a minute"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param("async with asyncio.timeout(5): ...", SHORT, id="block"),
        pytest.param("async with asyncio.timeout(60): ...", [], id="ends a hang"),
        pytest.param("PATIENCE = 5.0\nasync with asyncio.timeout(PATIENCE): ...", SHORT, id="constant"),
        pytest.param("PATIENCE: Final = 60.0\nasync with asyncio.timeout(PATIENCE): ...", [], id="long constant"),
        pytest.param("await asyncio.wait_for(event.wait(), 1)", SHORT, id="awaitable"),
        pytest.param("process.wait(timeout=10)", SHORT, id="process"),
        pytest.param("event.wait(0.1)", SHORT, id="event"),
        pytest.param("thread.join(5)", SHORT, id="thread"),
        pytest.param("queue.get(timeout=5)", SHORT, id="queue"),
        pytest.param("wait_until(ready, 'it is ready', timeout_seconds=20)", SHORT, id="of our own"),
        pytest.param("connection.settimeout(0.01)", SHORT, id="socket"),
        pytest.param("inotify.read(timeout=0)", [], id="without waiting"),
        pytest.param("','.join(words)", [], id="of texts"),
        pytest.param("with pytest.raises(TimeoutError): ...", ["expects a timeout"], id="expected"),
        pytest.param("with raises((OSError, socket.timeout)): ...", ["expects a timeout"], id="one of two"),
        pytest.param("with pytest.raises(subprocess.TimeoutExpired): ...", ["expects a timeout"], id="of a process"),
        pytest.param("with pytest.raises(OSError): ...", [], id="another error"),
    ],
)
def test_timeouts(source: str, expected: list[str]) -> None:
    assert found_in(source) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param("await asyncio.sleep(5)", [], id="pause"),
        pytest.param("took = loop.time() - began\nassert took < 5", [], id="elapsed"),
        pytest.param("with pytest.raises(TimeoutError): ...", [], id="expected"),
        pytest.param("async with asyncio.timeout(5): ...", [], id="timeout"),
        pytest.param("async def g():\n  await asyncio.sleep(5)", [], id="nested"),
        pytest.param("import time\ntime.sleep(5)", ["f pauses"], id="of the machine"),
        pytest.param("assert time.monotonic() - began < 5", TIMES, id="elapsed on the machine"),
        pytest.param("assert time.time() - began < 5", TIMES, id="date of the machine"),
    ],
)
def test_virtual_time(body: str, expected: list[str]) -> None:
    lines = "\n".join(f"  {line}" for line in body.splitlines())
    test = f"async def f():\n{lines}"
    assert found_in(f"@virtual_time\n{test}") == found_in(f"pytestmark = [virtual_time]\n{test}") == expected
    assert found_in(f"@virtual_time\nasync def g(): ...\n{test}") != []
