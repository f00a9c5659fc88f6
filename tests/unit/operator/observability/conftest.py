"""Recorders that post at once."""

from collections.abc import AsyncIterator

import pytest
from nodedevice_operator.observability import recorder as module

from tests.fakes.operator.collaborators import running
from tests.unit.operator.observability.recording import Recorder


@pytest.fixture
async def recorder(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Recorder]:
    """One that retries at once, and waits for nothing to gather."""
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "_LONGEST_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(module, "_GATHER_SECONDS", 0.0)
    made = Recorder()
    async with running(made.work()):
        yield made


@pytest.fixture
async def at_once(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """One that waits for no more numbers either."""
    monkeypatch.setattr(module, "_GATHER_NUMBERS_SECONDS", 0.0)
    monkeypatch.setattr(module, "_COUNT_SECONDS", 0.0)
    return recorder
