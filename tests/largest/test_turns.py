"""With the largest input that is accepted, the event loop has a turn for others after so much work.

A container runtime closes the connection of a plugin that does not answer within two seconds, a leader must renew its Lease, and
kube-scheduler waits. The work is counted in lines of Python, which take a tenth of a microsecond each; `make bench` measures the
same turns in CPU time.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.turns import Lines
from tests.largest.node import Scenario
from tests.largest.run import PROGRAMS, longest_turn

# Some 50 ms. The largest list of devices is 114,688: more than three lines for each are too many.
MOST_LINES = 450_000


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, for sockets."""
    with tempfile.TemporaryDirectory(prefix="turns-") as made:
        yield Path(made)


@pytest.mark.parametrize(
    "scenario",
    [pytest.param(each, id=f"{program}-{each.__name__}") for program, all_ in PROGRAMS.items() for each in all_],
)
def test_no_turn_is_longer(scenario: Scenario, folder: Path) -> None:
    found = longest_turn(scenario, folder, Lines())
    assert 0 < found.most.cost <= MOST_LINES, found.most
