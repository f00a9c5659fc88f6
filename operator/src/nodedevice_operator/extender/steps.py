"""What is computed in steps, so that whoever answers others does so between them. Pure."""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
# Others have their turn at each `yield`.
Steps = Generator[None, None, T]
