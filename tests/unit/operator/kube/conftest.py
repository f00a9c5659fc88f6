"""The server that the tests of requests share."""

from collections.abc import Iterator

import pytest

from tests.unit.operator.kube.api_server import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
