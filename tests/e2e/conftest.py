"""The whole product, running, started for each file of tests here."""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from hack.cluster.local.stack import GPU, NODE_A, NODE_B, Stack


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With E2E_REQUIRED a skip is a failure: a run in which all is skipped would be green, and prove nothing."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and os.environ.get("E2E_REQUIRED"):
        _, _, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skipped, and E2E_REQUIRED is set. {reason.removeprefix('Skipped: ')}"
    return report


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    folder = Path(tempfile.mkdtemp(prefix="nd-e2e-"))
    try:
        with Stack.start(folder) as running:
            running.wait_for("all is advertised", lambda: (gpus(running, NODE_A), gpus(running, NODE_B)) == (4, 2))
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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


def gpus(stack: Stack, node_name: str) -> int:
    """How many GPUs the Node offers; -1: the name is not there."""
    node = json.loads(stack.control_plane.kubectl("get", "node", node_name, "-o", "json"))
    return int(node["status"]["capacity"].get(GPU, -1))
