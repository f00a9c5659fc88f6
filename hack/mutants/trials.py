"""Unit tests in a child process each time: first to learn which test runs which line, then with one mutant in place of its
module.

A child is forked from a process that has imported pytest and the libraries, but none of our modules: a mutant costs its
tests, not their start. Nothing in the working tree is written. A child that hangs is killed with its children, and its
memory is bounded.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import hypothesis
import pytest

# import roots of test modules and of ours
_PRELOADED: Final = (
    *("aiohttp", "asyncio", "click", "google.protobuf", "grpc.aio", "hypothesis", "kopf", "kubernetes.client"),
    *("kubernetes.dynamic", "msgspec", "prometheus_client", "psutil", "pytest_asyncio", "tenacity", "yaml"),
)
_FOLDERS: Final = tuple(f"tests/unit/{name}" for name in ("node_agent", "operator", "common", "kube", "api"))
_PROFILE: Final = "gate"  # of tests/examples.py: the examples of the gate, regardless of the environment
_MEMORY_BYTES: Final = 8 << 30
_OPTIONS: Final = (
    *("-q", "--no-header", "-p", "no:cacheprovider", "-m", "not cluster and not root"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # pytest plugins are preloaded as well
)


@dataclass(frozen=True)
class Reach:
    """tests: by file and line, the tests that run it. seconds: duration of each test."""

    tests: Mapping[str, Mapping[int, Sequence[str]]]
    seconds: Mapping[str, float]

    def of(self, file: str, lines: range) -> list[str]:
        """The tests that run one of these lines, the shortest first."""
        by_line = self.tests.get(file, {})
        found = {test for line in lines for test in by_line.get(line, ())}
        return sorted(found, key=lambda test: (self.seconds[test], test))

    def pack(self) -> dict[str, Any]:
        """In JSON's types: tests by number, as each line names the tests that run it."""
        numbers = {test: number for number, test in enumerate(self.seconds)}
        lines = {
            file: {str(line): [numbers[test] for test in tests] for line, tests in by_line.items()}
            for file, by_line in self.tests.items()
        }
        return {"lines": lines, "seconds": dict(self.seconds)}

    @classmethod
    def unpack(cls, packed: Mapping[str, Any]) -> "Reach":
        names = list(packed["seconds"])
        tests = {
            file: {int(line): [names[number] for number in numbers] for line, numbers in by_line.items()}
            for file, by_line in packed["lines"].items()
        }
        return cls(tests, packed["seconds"])


@dataclass(frozen=True)
class Outcome:
    """word: killed, survived, timeout or unreached (no test runs these lines). test: the first that failed, if any."""

    word: str
    test: str = ""
    seconds: float = 0.0


def preload() -> None:
    """Call it once, before anything else here. Raises ImportError."""
    for name in _PRELOADED:
        importlib.import_module(name)


def reach(root: Path, files: Sequence[str], deadline_seconds: float = 1800) -> Reach:
    """Runs every unit test; a test that fails without any mutant proves nothing, and is left out by name.

    Raises RuntimeError with the end of the output if they cannot be run, or take too long.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        answer, output = Path(name) / "reach.json", Path(name) / "output"
        status = _in_child(lambda: _measure(root, files, answer), output, deadline_seconds)
        if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            raise RuntimeError(f"the unit tests cannot be run:\n{output.read_text()[-4000:]}")
        found = json.loads(answer.read_text())
    for test in found["failed"]:
        print(f"left out, as it fails without any mutant: {test}", flush=True)
    return Reach.unpack(found)


def try_out(root: Path, file: str, text: str, tests: Sequence[str], expected_seconds: float) -> Outcome:
    """Run these tests in this order, until one fails, with `text` as the source of `file`."""
    if not tests:
        return Outcome("unreached")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        failed, output = Path(name) / "failed", Path(name) / "output"
        status = _in_child(lambda: _run_with(root, file, text, tests, failed), output, 20 + 4 * expected_seconds)
        first = failed.read_text() if failed.exists() else ""
    took = round(time.monotonic() - began, 2)
    if status is None:
        return Outcome("timeout", first, took)
    is_noticed = status not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    return Outcome("killed" if is_noticed else "survived", first, took)


def _in_child(job: Callable[[], int], output: Path, deadline_seconds: float) -> int | None:
    """Its exit status; None: it took too long."""
    if (child := os.fork()) == 0:
        _become_child(job, output)
    deadline = time.monotonic() + deadline_seconds
    status = None
    try:
        while status is None and time.monotonic() < deadline:
            found, code = os.waitpid(child, os.WNOHANG)
            if found:
                status = os.waitstatus_to_exitcode(code)
            else:
                time.sleep(0.01)
    finally:  # also after Ctrl-C, which a child in its own session does not receive
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # including processes that a test may have left
        if status is None:
            os.waitpid(child, 0)
    return status


def _become_child(job: Callable[[], int], output: Path) -> None:
    """Never returns."""
    status = 70
    try:
        os.setsid()
        os.environ["HYPOTHESIS_PROFILE"] = _PROFILE
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        target = os.open(output, os.O_WRONLY | os.O_CREAT)
        for stream in (1, 2):
            os.dup2(target, stream)
        status = job()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


class _Rules:
    """Settings for both kinds of runs, on top of the profile of tests/conftest.py, whose number of examples stays: no
    shrinking of failures, and the same examples each time.

    Tests run in an empty directory: a mutant that removes files of an unset directory removes those of the current
    one.
    """

    def __init__(self, scratch: str) -> None:
        self._scratch = scratch

    def pytest_collection_finish(self) -> None:
        directory = Path(self._scratch, "current")
        directory.mkdir()
        os.chdir(directory)

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile(
            "mutants", hypothesis.settings(), phases=phases, derandomize=True, database=None, report_multiple_bugs=False
        )
        hypothesis.settings.load_profile("mutants")


class _Measured(_Rules):
    """Sets the test of the following lines for coverage, and records the duration of each test."""

    def __init__(self, coverage: Any, scratch: str) -> None:
        super().__init__(scratch)
        self._coverage = coverage
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._coverage.switch_context(nodeid)

    def pytest_runtest_logfinish(self) -> None:
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.add(report.nodeid)


class _Chosen(_Rules):
    """Only these tests, in this order; records the failed one."""

    def __init__(self, tests: Sequence[str], failed: Path, scratch: str) -> None:
        super().__init__(scratch)
        self._order = {test: number for number, test in enumerate(tests)}
        self._failed = failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid)


def _measure(root: Path, files: Sequence[str], answer: Path) -> int:
    import coverage

    measured = coverage.Coverage(data_file=None, include=[str(root / file) for file in files])
    measured.start()
    with tempfile.TemporaryDirectory(prefix="m-") as scratch:
        plugin = _Measured(measured, scratch)
        status = pytest.main([*_OPTIONS, f"--basetemp={scratch}/t", *_FOLDERS], plugins=[plugin])
    measured.stop()
    data = measured.get_data()
    tests = {
        Path(file).relative_to(root).as_posix(): {
            line: sorted(set(found) - plugin.failed - {""}) for line, found in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    packed = Reach(tests, plugin.seconds).pack()
    answer.write_text(json.dumps({**packed, "failed": sorted(plugin.failed)}))
    return int(status)


def _run_with(root: Path, file: str, text: str, tests: Sequence[str], failed: Path) -> int:
    sys.meta_path.insert(0, _Instead(_module_of(file), root / file, text))
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.TemporaryDirectory(prefix="m-") as scratch:
        plugin = _Chosen(tests, failed, scratch)
        return int(pytest.main([*_OPTIONS, "-x", f"--basetemp={scratch}/t", *files], plugins=[plugin]))


def _module_of(file: str) -> str:
    """`node-agent/src/nodedevice_agent/pods.py` is `nodedevice_agent.pods`."""
    return file.partition("/src/")[2].removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class _Instead(importlib.machinery.SourceFileLoader):
    """Finder and loader of one module with a replaced source."""

    def __init__(self, module: str, path: Path, text: str) -> None:
        super().__init__(module, str(path))
        self._text = text

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        return compile(self._text, self.path, "exec", dont_inherit=True)
