"""Most tests here run the agent's side of device plugins in their own process."""

import pytest

from tests.integration.deadlines import long_deadlines as long_deadlines


@pytest.fixture(autouse=True)
def deadlines(long_deadlines: None) -> None:
    """None of them decides a test here."""
