"""Fixtures for all unit tests of the operator."""

from collections.abc import Iterator

import pytest

from tests.fakes.operator.collaborators import Clock
from tests.unit.operator.kube.api_server import Server


@pytest.fixture(scope="module", autouse=True)
def _no_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A machine without certificate authorities: reading its hundreds takes longer than most tests that open a client.

    The agent's tests may come after these, and its client fails without authorities.
    """
    empty = tmp_path_factory.mktemp("authorities")
    (empty / "none.pem").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(empty / "none.pem"))
        patch.setenv("SSL_CERT_DIR", str(empty))
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Iterator[Server]:
    """An API server on loopback that responds as the test sets it."""
    made = Server()
    yield made
    made.close()
