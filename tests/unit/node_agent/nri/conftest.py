"""The two ends of a session: a recording handler, and a fake runtime."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.fakes.nri_runtime import FakeRuntime, PluginConnection
from tests.fakes.runtime_handler import Recorder
from tests.integration.deadlines import deadlines as deadlines
from tests.integration.deadlines import long_deadlines as long_deadlines
from tests.unit.node_agent.nri.runtime_side import joined


@pytest.fixture
def handler() -> Recorder:
    return Recorder()


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntime:
    return FakeRuntime(tmp_path / "nri.sock")


@pytest.fixture
async def plugin(handler: Recorder, runtime: FakeRuntime) -> AsyncIterator[PluginConnection]:
    """Joined to a runtime that is as it comes."""
    async with joined(handler, runtime) as plugin:
        yield plugin
