"""Each test ends after a time of its own, with its name and the stacks of all threads: a test that hangs is named.

The times only end what hangs: a machine may be slow. They are shorter than a lane's (hack/ci/runner.py), which names no test.
A test that needs another time has a mark `timeout` of its own. Set-up counts too, but for programs that are built the first time,
as lanes build them before. pytest-timeout sends itself a signal, so that a loop whose clock is played ends as well.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

_TESTS: Final = Path(__file__).parent
_SECONDS: Final[Mapping[str, float]] = {"unit": 300.0, "conformance": 1200.0, "robustness": 3000.0, "e2e": 3000.0}
_OTHERS_SECONDS: Final = 1800.0


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("timeout") is None and item.path.is_relative_to(_TESTS):
            folder = item.path.relative_to(_TESTS).parts[0]
            item.add_marker(pytest.mark.timeout(_SECONDS.get(folder, _OTHERS_SECONDS), method="signal"))
