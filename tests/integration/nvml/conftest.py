"""Nodes whose GPUs are all available when the test begins."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.nvml.gpu_node import Node, node


@pytest.fixture
async def t4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Two T4s."""
    async with node(tmp_path, "t4-pair", monkeypatch) as here:
        await here.until(lambda r: r.available == 2)
        yield here


@pytest.fixture
async def dgx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Eight H100s."""
    async with node(tmp_path, "dgx-h100", monkeypatch) as here:
        await here.until(lambda r: r.available == 8)
        yield here
