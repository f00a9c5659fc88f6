"""No wall clock decides in the gate: on a machine that is slow or busy a test takes longer, and its verdict is the same.

A test waits for an event, or for a count of work that the code does; time that has to pass is the test's own `now`, or a loop's
that jumps. A time limit only ends a hang, and is a minute and more. What the gate runs: its test files, and the modules below
tests/ that they import. Findings: clocks.py beside this file.
"""

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
    "tests/fakes/played_api/server.py::PlayedApi._lines": "how long a watch lasts that its client has asked for",
    "tests/unit/cli/test_transport.py::test_a_response_that_comes_ever_so_slowly*": "a limit that is always reached: it has no end",
    "tests/unit/common/test_api_transport.py::Drops.read": "virtual seconds",
    "tests/unit/node_agent/lib/test_memory.py::_released": "virtual seconds",
    "tests/unit/node_agent/plugins/nvml/test_driver_release.py::label": "virtual seconds",
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
