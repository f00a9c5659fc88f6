"""The whole product, running, started for each file of tests here."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from docs.tried_nodes import TriedNode
from tests.cluster.local.stack import GPU, NODE_A, NODE_B, Stack
from tests.e2e.recording import RanOn, Recorder, is_recording

_RAN_ON = pytest.StashKey[list[TriedNode]]()
_RECORDER = pytest.StashKey[Recorder]()


@pytest.fixture
def ran_on(request: pytest.FixtureRequest) -> RanOn:
    """To be called with what describes the node that a test runs on; it is asked only where RECORD is set."""
    nodes = request.node.stash.setdefault(_RAN_ON, [])

    def note(describe: Callable[[], TriedNode]) -> None:
        if is_recording():
            nodes.append(_recorder(request.config).node(describe))

    return note


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With E2E_REQUIRED a skip is a failure: a run in which all is skipped would be green, and prove nothing."""
    report = yield
    _record(item, report)
    if report.skipped and isinstance(report.longrepr, tuple) and os.environ.get("E2E_REQUIRED"):
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and E2E_REQUIRED is set. {reason.removeprefix('Skipped: ')}"
    return report


def _record(item: pytest.Item, report: pytest.TestReport) -> None:
    """What a test ran on has passed it, or has not."""
    if report.failed or (report.passed and report.when == "call"):
        target = "e2e-machine" if item.path.parent.name == "machine" else "e2e"
        for node in item.stash.get(_RAN_ON, []):
            tests = item.path.stem.removeprefix("test_").replace("_", " ")
            _recorder(item.config).note(target, node, tests, is_passed=report.passed)


def _recorder(config: pytest.Config) -> Recorder:
    return config.stash.setdefault(_RECORDER, Recorder())


def pytest_sessionfinish(session: pytest.Session) -> None:
    if is_recording():
        _recorder(session.config).keep()


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with (
        tempfile.TemporaryDirectory(prefix="nd-e2e-", ignore_cleanup_errors=True) as folder,
        Stack.start(Path(folder)) as running,
    ):
        running.wait_for("all is advertised", lambda: (_gpus(running, NODE_A), _gpus(running, NODE_B)) == (4, 2))
        yield running


@pytest.fixture
def own_temp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of this test's own, short enough for sockets, in which nothing may be left behind."""
    folder = Path("/tmp") / f"nd-{os.getpid()}-{time.monotonic_ns() % 10**6}"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    left = list(folder.iterdir())
    assert not left
    folder.rmdir()


def _gpus(stack: Stack, node_name: str) -> int:
    """How many GPUs the Node offers; -1: the name is not there."""
    node = json.loads(stack.control_plane.kubectl("get", "node", node_name, "-o", "json"))
    return int(node["status"]["capacity"].get(GPU, -1))
