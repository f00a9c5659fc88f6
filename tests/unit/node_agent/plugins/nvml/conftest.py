"""A watch of GPUs whose readers are played."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.background import background
from tests.fakes.gpu_watch import Node
from tests.fakes.virtual_time import later


@pytest.fixture
async def play(tmp_path: Path) -> Any:
    """Begins a watch on a node with these scripts of its readers; it ends with the test."""
    async with AsyncExitStack() as stack:

        async def begin(
            *scripts: list[Any], is_plugged: bool = True, labels: Mapping[str, str] | None = None, **settings: Any
        ) -> Node:
            node = Node(tmp_path, **settings)
            node.scripts = [*scripts]
            if is_plugged:
                node.plug()
            node.labels.are(labels or {})
            await stack.enter_async_context(background(node.make().run()))
            await later(0.01)
            return node

        yield begin
