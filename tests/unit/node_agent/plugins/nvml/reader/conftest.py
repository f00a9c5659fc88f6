"""What a GPU answers, and its handle."""

import pytest
from nodedevice_agent.plugins.nvml.gpu import Gpu
from nodedevice_agent.plugins.nvml.reader.driver import Handle

from tests.fakes.nvml_answers import GOOD, NvmlAnswers


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> NvmlAnswers:
    answers = NvmlAnswers(monkeypatch)
    answers.answers |= GOOD
    return answers


@pytest.fixture
def handle() -> Handle:
    return Handle("h0", Gpu("GPU-a", "NVIDIA T4"), total_bytes=1000)
