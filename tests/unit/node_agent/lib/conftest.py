"""Plugins and kubelets here answer over real sockets."""

import pytest

from tests.integration.deadlines import long_deadlines as long_deadlines


@pytest.fixture(autouse=True)
def deadlines(long_deadlines: None) -> None:
    """None of them decides a test, but where the other side never answers."""
