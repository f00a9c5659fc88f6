"""Work in steps, as an event loop goes through it with turns for others in between, done at once."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """What the steps return."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found
