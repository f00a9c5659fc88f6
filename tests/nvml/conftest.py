"""A fake machine and a process that sees it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.fake_nvml.library import FakeNvml
from tests.nvml.answers import Start
from tests.nvml.nvml_process import NvmlProcess


@pytest.fixture
def dgx(tmp_path: Path) -> FakeNvml:
    """A healthy DGX H100."""
    return FakeNvml(tmp_path, "dgx-h100")


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts processes that see a machine; they end after the test."""
    started: list[NvmlProcess] = []

    def begin(machine: FakeNvml) -> NvmlProcess:
        started.append(NvmlProcess(machine.environment(records_calls=True)))
        return started[-1]

    yield begin
    for process in started:
        process.end()


@pytest.fixture
def nvml(dgx: FakeNvml, start: Start) -> NvmlProcess:
    """A process that sees the DGX."""
    return start(dgx)
