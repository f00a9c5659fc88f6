"""`make test` asks for git, make and Python alone: a machine without Debian's packages passes it."""

from collections.abc import Iterator

import pytest

from hack.cluster.errors import BinaryError
from tests.monitoring import prometheus


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    prometheus._found.cache_clear()
    yield
    prometheus._found.cache_clear()


def test_where_it_cannot_be_had_its_tests_are_skipped_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def find(names: list[str]) -> None:
        asked.extend(names)
        raise BinaryError("promtool", "could not be fetched", "run `apt-get update`")

    monkeypatch.setattr(prometheus, "find", find)
    for _ in range(2):
        with pytest.raises(pytest.skip.Exception, match="run `apt-get update`"):
            prometheus.program("promtool")
    assert asked == ["promtool"]
