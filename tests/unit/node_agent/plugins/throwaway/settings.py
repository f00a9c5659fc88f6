"""Settings of a plugin that is in no release: test_throwaway.py puts this folder among the built-in ones."""

from typing import Annotated, ClassVar

from msgspec import Meta
from nodedevice_agent.plugins.contract import OneResource


class ThrowawaySettings(OneResource, frozen=True):
    """One resource of numbers."""

    command: ClassVar[str] = "throwaway"

    # how many devices there are
    count: Annotated[int, Meta(ge=1, le=8)] = 1
