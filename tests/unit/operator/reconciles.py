"""A reconcile that records its nodes; for the test files that import the fixture `reconciles`.

from tests.unit.operator.reconciles import reconciles as reconciles
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest


class Reconciles:
    """A reconcile that records its nodes, and waits while `gate` is closed."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.running: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.answer: Callable[[str], Awaitable[float | None]] | None = None
        self._changed = asyncio.Condition()

    async def __call__(self, node: str) -> float | None:
        assert node not in self.running, "two reconciles of one node"
        self.running.add(node)
        self.seen.append(node)
        async with self._changed:
            self._changed.notify_all()
        try:
            await self.gate.wait()
            return await self.answer(node) if self.answer else None
        finally:
            self.running.discard(node)

    async def until(self, count: int) -> None:
        async with asyncio.timeout(60), self._changed:
            await self._changed.wait_for(lambda: len(self.seen) >= count)


@pytest.fixture
async def reconciles() -> Reconciles:
    return Reconciles()
