"""Long computations as generators, so that other requests run between their steps. Pure."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
# Other requests run at each `yield`.
Steps = Generator[None, None, T]
