from pathlib import Path

import pytest

from tests.fakes.sysfs import FakeSysfs


@pytest.fixture
def host(tmp_path: Path) -> FakeSysfs:
    """A host without a device."""
    return FakeSysfs(tmp_path)
