"""The fuzzer as a fixture, and its count at the end of the run."""

import pytest

from tests.robustness.fuzz.budget import SECONDS, SEED, Fuzzer, Tally

_TALLY = Tally()


@pytest.fixture
def fuzz() -> Fuzzer:
    """Run a check with as many inputs as its share of the time allows."""
    return Fuzzer(_TALLY)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _TALLY.inputs:
        terminalreporter.write_line(
            f"fuzz: {_TALLY.inputs} inputs tried in {SECONDS:g} s, {_TALLY.failed} targets failed, FUZZ_SEED={SEED}"
        )
