"""The kubelet's device manager beside ours, one process for all of these tests; what was compared is reported at the end."""

import asyncio
import contextlib
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.cluster.build.binaries import find
from tests.oracle.differences import Difference
from tests.oracle.driver import Comparison
from tests.oracle.kubelet import Kubelet, way_to_mount
from tests.oracle.sides import Side
from tests.oracle.steps import Case, Machine
from tests.oracle.strategies import SEED, SEQUENCES

Compare = Callable[[Case], list[Difference]]
# a test of both sides, the kubelet's first
Play = Callable[[Side, Side], Awaitable[None]]
_TALLY = pytest.StashKey[list[str]]()


def searching(count: int) -> settings:
    """For so many examples of hypothesis, and at least one."""
    return settings(
        max_examples=max(count, 1),
        deadline=None,
        database=None,
        # shrinking is what makes a counter-example readable; explaining it would take as long again
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )


class Both:
    """The comparison and the event loop that it lives in."""

    def __init__(self, runner: asyncio.Runner, comparison: Comparison) -> None:
        self.runner = runner
        self.comparison = comparison

    def run(self, case: Case) -> list[Difference]:
        return self.runner.run(self.comparison.run(case))

    def play(self, play: Play, machine: Machine) -> None:
        self.runner.run(self._play(play, machine))

    async def _play(self, play: Play, machine: Machine) -> None:
        async with contextlib.AsyncExitStack() as stack:
            sides = self.comparison.sides()
            for side in sides:
                await side.start(machine)
                stack.push_async_callback(side.stop)
            await play(*sides)


@pytest.fixture(scope="session")
def both(pytestconfig: pytest.Config, progress: Callable[[str], None]) -> Iterator[Both]:
    way = way_to_mount()
    if way is None:
        do_without("the kubelet's device manager needs a mount namespace: run as root, or allow user namespaces")
    find(["oracle"], progress)
    # short paths: a socket's has at most 107 bytes
    with tempfile.TemporaryDirectory(prefix="nodedevice-") as name, asyncio.Runner() as runner:
        folders = [Path(name) / part for part in ("kubelet", "ours", "state")]
        for folder in folders:
            folder.mkdir()
        stack = contextlib.AsyncExitStack()
        kubelet = runner.run(stack.enter_async_context(Kubelet(folders[0], way)))
        try:
            comparison = Comparison(kubelet, folders[1], folders[2])
            yield Both(runner, comparison)
            pytestconfig.stash.setdefault(_TALLY, []).extend(comparison.tally.lines())
        finally:
            runner.run(stack.aclose())


def do_without(why: str) -> NoReturn:
    """A failure where the number of sequences was set, as none is compared; in other runs it is one skipped test of many."""
    if "ORACLE_SEQUENCES" in os.environ:
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def compare(both: Both) -> Compare:
    """Run a case through both. Raises Parted where they differ and nothing allows it; returns what is allowed."""
    return both.run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if {"both", "compare"} & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    lines = config.stash.get(_TALLY, [])
    if lines:
        terminalreporter.section("compared with the kubelet's device manager")
        terminalreporter.line(f"ORACLE_SEED={SEED} ORACLE_SEQUENCES={SEQUENCES}")
        for line in lines:
            terminalreporter.line(line)
