"""The simulated host shows this machine's devices as this machine's kernel does.

tests/e2e/machine/test_numa_and_cards.py compares an emulated machine, which has all kinds but input devices.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.kernel_sysfs import KINDS, RealHost, differences
from tests.fakes.sysfs import FakeSysfs


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_devices_are_shown_as_the_kernel_shows_them(kind: Callable[[RealHost, FakeSysfs], int], tmp_path: Path) -> None:
    real, fake = RealHost(""), FakeSysfs(tmp_path)
    if kind(real, fake) == 0:
        pytest.skip(f"this machine has no {kind.__name__.replace('_', ' ')}")
    assert [*differences(real, fake)] == []
