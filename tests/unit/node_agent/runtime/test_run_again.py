"""What is run again after a failure does what it had to do before it."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from nodedevice_agent.runtime import device_numbers
from nodedevice_agent.runtime.device_numbers import DeviceNumbers
from nodedevice_common import tasks
from nodedevice_common.tasks import retried

from tests.fakes.background import background
from tests.fakes.polling import until


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "FIRST_PAUSE_SECONDS", 0.0)


async def test_a_comparison_that_failed_is_made_without_another_change(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []

    def given_files(_: object) -> tuple[()]:
        compared.append("asked")
        if len(compared) <= 2:
            raise RuntimeError("can't start new thread")
        return ()

    monkeypatch.setattr(device_numbers, "given_files", given_files)
    monkeypatch.setattr(device_numbers, "_SETTLE_SECONDS", 0.0)
    numbers = DeviceNumbers(cast(Any, SimpleNamespace()), lambda: None)
    async with background(retried("device numbers", numbers.run)):
        numbers.is_due.set()
        await until(lambda: len(compared) == 3)
