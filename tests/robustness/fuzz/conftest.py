"""The fuzzer and a loop for its checks as fixtures, and its count at the end of the run."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.robustness.fuzz.budget import SECONDS, SEED, Fuzzer, Tally

_TALLY = Tally()


@pytest.fixture
def fuzz() -> Fuzzer:
    """Run a check with as many inputs as its share of the time allows."""
    return Fuzzer(_TALLY)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as running:
        yield running


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _TALLY.inputs:
        terminalreporter.write_line(
            f"fuzz: {_TALLY.inputs} inputs tried in {SECONDS:g} s, {_TALLY.failed} targets failed, FUZZ_SEED={SEED}"
        )
